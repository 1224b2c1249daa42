package api

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validVolumes checks a pod's volumes and returns them by name.
func validVolumes(volumes []corev1.Volume, path *field.Path) (map[string]*corev1.Volume, field.ErrorList) {
	var errs field.ErrorList
	byName := map[string]*corev1.Volume{}
	for i := range volumes {
		v, at := &volumes[i], path.Index(i)
		switch {
		case v.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case byName[v.Name] != nil:
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		default:
			errs = append(errs, invalid(at.Child("name"), v.Name, validation.IsDNS1123Label(v.Name))...)
		}
		byName[v.Name] = v
		errs = append(errs, validVolumeSource(&v.VolumeSource, at)...)
	}
	return byName, errs
}

// countSources says how many of a source's pointers are set, and the JSON name
// of the second. The volume types are many and alike, hence reflection.
func countSources(source any) (int, string) {
	v := reflect.Indirect(reflect.ValueOf(source))
	n, second := 0, ""
	for i := range v.NumField() {
		if v.Field(i).Kind() != reflect.Pointer || v.Field(i).IsNil() {
			continue
		}
		if n++; n == 2 {
			second, _, _ = strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		}
	}
	return n, second
}

func validVolumeSource(s *corev1.VolumeSource, path *field.Path) field.ErrorList {
	n, second := countSources(s)
	switch {
	case n == 0:
		return field.ErrorList{field.Required(path, "must specify a volume type")}
	case n > 1:
		return field.ErrorList{field.Forbidden(path.Child(second), "may not specify more than 1 volume type")}
	}
	switch {
	case s.EmptyDir != nil:
		if l := s.EmptyDir.SizeLimit; l != nil && l.Sign() < 0 {
			return field.ErrorList{field.Forbidden(path.Child("emptyDir", "sizeLimit"), "SizeLimit field must be a valid resource quantity")}
		}
	case s.HostPath != nil:
		return validHostPath(s.HostPath, path.Child("hostPath"))
	case s.Secret != nil:
		at := path.Child("secret")
		errs := required(s.Secret.SecretName, at.Child("secretName"))
		errs = append(errs, validMode(s.Secret.DefaultMode, at.Child("defaultMode"))...)
		return append(errs, validKeys(s.Secret.Items, at.Child("items"))...)
	case s.ConfigMap != nil:
		at := path.Child("configMap")
		errs := required(s.ConfigMap.Name, at.Child("name"))
		errs = append(errs, validMode(s.ConfigMap.DefaultMode, at.Child("defaultMode"))...)
		return append(errs, validKeys(s.ConfigMap.Items, at.Child("items"))...)
	case s.DownwardAPI != nil:
		at := path.Child("downwardAPI")
		errs := validMode(s.DownwardAPI.DefaultMode, at.Child("defaultMode"))
		return append(errs, validDownward(s.DownwardAPI.Items, at)...)
	case s.Projected != nil:
		return validProjected(s.Projected, path.Child("projected"))
	case s.PersistentVolumeClaim != nil:
		return required(s.PersistentVolumeClaim.ClaimName, path.Child("persistentVolumeClaim", "claimName"))
	case s.Ephemeral != nil:
		at := path.Child("ephemeral", "volumeClaimTemplate")
		if s.Ephemeral.VolumeClaimTemplate == nil {
			return field.ErrorList{field.Required(at, "")}
		}
		return validClaimSpec(&s.Ephemeral.VolumeClaimTemplate.Spec, at.Child("spec"))
	case s.NFS != nil:
		return validNFS(s.NFS, path.Child("nfs"))
	case s.CSI != nil:
		return required(s.CSI.Driver, path.Child("csi", "driver"))
	case s.Image != nil:
		return oneOf(s.Image.PullPolicy, path.Child("image", "pullPolicy"), corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	}
	return nil
}

func validNFS(n *corev1.NFSVolumeSource, path *field.Path) field.ErrorList {
	errs := required(n.Server, path.Child("server"))
	if n.Path == "" {
		return append(errs, field.Required(path.Child("path"), ""))
	}
	if !strings.HasPrefix(n.Path, "/") {
		errs = append(errs, field.Invalid(path.Child("path"), n.Path, "must be an absolute path"))
	}
	return errs
}

func validHostPath(h *corev1.HostPathVolumeSource, path *field.Path) field.ErrorList {
	if h.Path == "" {
		return field.ErrorList{field.Required(path.Child("path"), "")}
	}
	errs := noBacksteps(h.Path, path.Child("path"))
	if h.Type == nil || *h.Type == corev1.HostPathUnset {
		return errs
	}
	return append(errs, oneOf(*h.Type, path.Child("type"),
		corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory, corev1.HostPathFileOrCreate, corev1.HostPathFile,
		corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)...)
}

func validMode(mode *int32, path *field.Path) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
	}
	return nil
}

func validKeys(items []corev1.KeyToPath, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, item := range items {
		at := path.Index(i)
		errs = append(errs, required(item.Key, at.Child("key"))...)
		errs = append(errs, validFilePath(item.Path, at.Child("path"))...)
		errs = append(errs, validMode(item.Mode, at.Child("mode"))...)
	}
	return errs
}

// validFilePath is the path of a file that a volume writes.
func validFilePath(p string, path *field.Path) field.ErrorList {
	if p == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := validLocalPath(p, path)
	if strings.HasPrefix(p, "..") && !strings.HasPrefix(p, "../") && p != ".." {
		errs = append(errs, field.Invalid(path, p, "must not start with '..'"))
	}
	return errs
}

func validDownward(items []corev1.DownwardAPIVolumeFile, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, item := range items {
		errs = append(errs, validFilePath(item.Path, path.Child("path"))...)
		switch {
		case item.FieldRef != nil && item.ResourceFieldRef != nil:
			errs = append(errs, field.Invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		case item.FieldRef != nil:
			errs = append(errs, validFieldRef(item.FieldRef, fileFields, path.Child("fieldRef"))...)
		case item.ResourceFieldRef != nil:
			errs = append(errs, validResourceRef(item.ResourceFieldRef, true, path.Child("resourceFieldRef"))...)
		default:
			errs = append(errs, field.Required(path, "one of fieldRef and resourceFieldRef is required"))
		}
		errs = append(errs, validMode(item.Mode, path.Child("mode"))...)
	}
	return errs
}
