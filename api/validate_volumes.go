package api

import (
	"fmt"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// volumeType is one of the things that S, the source of a volume, may be. name is
// how a second one is refused, which is not always how the field is called.
type volumeType[S any] struct {
	name  string
	set   func(*S) bool
	check func(*S, volumeIn, *field.Path) field.ErrorList
}

// volumeIn is where a volume is.
type volumeIn struct {
	pod    *podCheck // nil: it is a PersistentVolume
	name   string
	affine bool // to some nodes
}

func volumeWithin[S, T any](name string, get func(*S) *T, check func(*T, volumeIn, *field.Path) field.ErrorList) volumeType[S] {
	return volumeType[S]{
		name,
		func(s *S) bool { return get(s) != nil },
		func(s *S, in volumeIn, at *field.Path) field.ErrorList { return check(get(s), in, at) },
	}
}

// volume is a type that is checked in the same way wherever it is.
func volume[S, T any](name string, get func(*S) *T, check func(*T, *field.Path) field.ErrorList) volumeType[S] {
	return volumeWithin(name, get, func(t *T, _ volumeIn, at *field.Path) field.ErrorList { return check(t, at) })
}

// validSource wants exactly one of the types, and checks the first that is there.
func validSource[S any](s *S, types []volumeType[S], in volumeIn, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	found := false
	for _, t := range types {
		switch {
		case !t.set(s):
			continue
		case found:
			errs = append(errs, field.Forbidden(at.Child(t.name), "may not specify more than 1 volume type"))
		default:
			errs = append(errs, t.check(s, in, at)...)
		}
		found = true
	}
	return append(errs, need(!found, at, "must specify a volume type")...)
}

type (
	podSource = corev1.VolumeSource
	pvSource  = corev1.PersistentVolumeSource
)

// podVolumeTypes are what a pod's volume may be, in the order in which they are
// looked at.
var podVolumeTypes = []volumeType[podSource]{
	volume("emptyDir", func(s *podSource) *corev1.EmptyDirVolumeSource { return s.EmptyDir }, validEmptyDir),
	volume("hostPath", func(s *podSource) *corev1.HostPathVolumeSource { return s.HostPath }, validHostPath),
	volume("gitRepo", func(s *podSource) *corev1.GitRepoVolumeSource { return s.GitRepo }, validGitRepo),
	volume("gcePersistentDisk", func(s *podSource) *corev1.GCEPersistentDiskVolumeSource { return s.GCEPersistentDisk }, validGCEDisk),
	volume("awsElasticBlockStore", func(s *podSource) *corev1.AWSElasticBlockStoreVolumeSource { return s.AWSElasticBlockStore }, validAWSDisk),
	volume("secret", func(s *podSource) *corev1.SecretVolumeSource { return s.Secret }, func(s *corev1.SecretVolumeSource, at *field.Path) field.ErrorList {
		return validFiles("secretName", s.SecretName, s.DefaultMode, s.Items, at.Child("secret"))
	}),
	volume("nfs", func(s *podSource) *corev1.NFSVolumeSource { return s.NFS }, validNFS),
	volumeWithin("iscsi", func(s *podSource) *corev1.ISCSIVolumeSource { return s.ISCSI }, func(s *corev1.ISCSIVolumeSource, in volumeIn, at *field.Path) field.ErrorList {
		target := iscsiTarget{s.TargetPortal, s.IQN, s.Lun, s.InitiatorName, (s.DiscoveryCHAPAuth || s.SessionCHAPAuth) && s.SecretRef == nil}
		errs := target.faults(at.Child("iscsi"), "must be valid format starting with iqn, eui, or naa", nil)
		return append(errs, refuse(s.InitiatorName != nil && len(in.name+":"+s.TargetPortal) > 64, at.Child("name"), in.name, iscsiNameTooLong)...)
	}),
	volume("glusterfs", func(s *podSource) *corev1.GlusterfsVolumeSource { return s.Glusterfs }, func(g *corev1.GlusterfsVolumeSource, at *field.Path) field.ErrorList {
		return requiredFields(at.Child("glusterfs"), "endpoints", g.EndpointsName, "path", g.Path)
	}),
	volume("flocker", func(s *podSource) *corev1.FlockerVolumeSource { return s.Flocker }, validFlocker),
	volume("persistentVolumeClaim", func(s *podSource) *corev1.PersistentVolumeClaimVolumeSource { return s.PersistentVolumeClaim },
		func(p *corev1.PersistentVolumeClaimVolumeSource, at *field.Path) field.ErrorList {
			return requiredFields(at.Child("persistentVolumeClaim"), "claimName", p.ClaimName)
		}),
	volume("rbd", func(s *podSource) *corev1.RBDVolumeSource { return s.RBD }, func(r *corev1.RBDVolumeSource, at *field.Path) field.ErrorList {
		return validRBD(r.CephMonitors, r.RBDImage, at.Child("rbd"))
	}),
	volume("cinder", func(s *podSource) *corev1.CinderVolumeSource { return s.Cinder }, func(d *corev1.CinderVolumeSource, at *field.Path) field.ErrorList {
		at = at.Child("cinder")
		return append(requiredFields(at, "volumeID", d.VolumeID), validLocalRef(d.SecretRef, at)...)
	}),
	volume("cephFS", func(s *podSource) *corev1.CephFSVolumeSource { return s.CephFS }, func(f *corev1.CephFSVolumeSource, at *field.Path) field.ErrorList {
		return need(len(f.Monitors) == 0, at.Child("cephfs", "monitors"), "")
	}),
	volume("quobyte", func(s *podSource) *corev1.QuobyteVolumeSource { return s.Quobyte }, validQuobyte),
	volume("downwarAPI", func(s *podSource) *corev1.DownwardAPIVolumeSource { return s.DownwardAPI }, func(d *corev1.DownwardAPIVolumeSource, at *field.Path) field.ErrorList {
		at = at.Child("downwardAPI")
		errs := validMode(d.DefaultMode, at.Child("defaultMode"))
		for i := range d.Items {
			errs = append(errs, validDownwardFile(&d.Items[i], at)...)
		}
		return errs
	}),
	volume("fc", func(s *podSource) *corev1.FCVolumeSource { return s.FC }, validFC),
	volume("flexVolume", func(s *podSource) *corev1.FlexVolumeSource { return s.FlexVolume }, func(f *corev1.FlexVolumeSource, at *field.Path) field.ErrorList {
		return validFlex(f.Driver, f.Options, at.Child("flexVolume"))
	}),
	volume("configMap", func(s *podSource) *corev1.ConfigMapVolumeSource { return s.ConfigMap }, func(m *corev1.ConfigMapVolumeSource, at *field.Path) field.ErrorList {
		return validFiles("name", m.Name, m.DefaultMode, m.Items, at.Child("configMap"))
	}),
	volume("azureFile", func(s *podSource) *corev1.AzureFileVolumeSource { return s.AzureFile }, func(f *corev1.AzureFileVolumeSource, at *field.Path) field.ErrorList {
		return requiredFields(at.Child("azureFile"), "secretName", f.SecretName, "shareName", f.ShareName)
	}),
	volume("vsphereVolume", func(s *podSource) *corev1.VsphereVirtualDiskVolumeSource { return s.VsphereVolume }, validVsphere),
	volume("photonPersistentDisk", func(s *podSource) *corev1.PhotonPersistentDiskVolumeSource { return s.PhotonPersistentDisk }, validPhoton),
	volume("portworxVolume", func(s *podSource) *corev1.PortworxVolumeSource { return s.PortworxVolume }, validPortworx),
	volume("azureDisk", func(s *podSource) *corev1.AzureDiskVolumeSource { return s.AzureDisk }, validAzureDisk),
	volume("storageos", func(s *podSource) *corev1.StorageOSVolumeSource { return s.StorageOS }, func(o *corev1.StorageOSVolumeSource, at *field.Path) field.ErrorList {
		at = at.Child("storageos")
		return append(validStorageOS(o.VolumeName, o.VolumeNamespace, at), validLocalRef(o.SecretRef, at)...)
	}),
	volumeWithin("projected", func(s *podSource) *corev1.ProjectedVolumeSource { return s.Projected }, func(p *corev1.ProjectedVolumeSource, in volumeIn, at *field.Path) field.ErrorList {
		return in.pod.validProjected(p, at.Child("projected"))
	}),
	volume("scaleIO", func(s *podSource) *corev1.ScaleIOVolumeSource { return s.ScaleIO }, func(o *corev1.ScaleIOVolumeSource, at *field.Path) field.ErrorList {
		return requiredFields(at.Child("scaleIO"), "gateway", o.Gateway, "system", o.System, "volumeName", o.VolumeName)
	}),
	volume("csi", func(s *podSource) *corev1.CSIVolumeSource { return s.CSI }, validInlineCSI),
	volumeWithin("ephemeral", func(s *podSource) *corev1.EphemeralVolumeSource { return s.Ephemeral }, func(e *corev1.EphemeralVolumeSource, in volumeIn, at *field.Path) field.ErrorList {
		return in.pod.validEphemeralVolume(e, in.name, at)
	}),
	volumeWithin("image", func(s *podSource) *corev1.ImageVolumeSource { return s.Image }, func(i *corev1.ImageVolumeSource, in volumeIn, at *field.Path) field.ErrorList {
		at = at.Child("image")
		errs := in.pod.old("empty image", required(i.Reference, at.Child("reference")))
		return append(errs, validPullPolicy(i.PullPolicy, at.Child("pullPolicy"))...)
	}),
}

// pvTypes are what a PersistentVolume may be.
var pvTypes = []volumeType[pvSource]{
	volume("hostPath", func(s *pvSource) *corev1.HostPathVolumeSource { return s.HostPath }, validHostPath),
	volume("gcePersistentDisk", func(s *pvSource) *corev1.GCEPersistentDiskVolumeSource { return s.GCEPersistentDisk }, validGCEDisk),
	volume("awsElasticBlockStore", func(s *pvSource) *corev1.AWSElasticBlockStoreVolumeSource { return s.AWSElasticBlockStore }, validAWSDisk),
	volume("glusterfs", func(s *pvSource) *corev1.GlusterfsPersistentVolumeSource { return s.Glusterfs }, validGlusterPV),
	volume("flocker", func(s *pvSource) *corev1.FlockerVolumeSource { return s.Flocker }, validFlocker),
	volume("nfs", func(s *pvSource) *corev1.NFSVolumeSource { return s.NFS }, validNFS),
	volume("rbd", func(s *pvSource) *corev1.RBDPersistentVolumeSource { return s.RBD }, func(r *corev1.RBDPersistentVolumeSource, at *field.Path) field.ErrorList {
		return validRBD(r.CephMonitors, r.RBDImage, at.Child("rbd"))
	}),
	volume("quobyte", func(s *pvSource) *corev1.QuobyteVolumeSource { return s.Quobyte }, validQuobyte),
	volume("cephFS", func(s *pvSource) *corev1.CephFSPersistentVolumeSource { return s.CephFS }, func(f *corev1.CephFSPersistentVolumeSource, at *field.Path) field.ErrorList {
		return need(len(f.Monitors) == 0, at.Child("cephfs", "monitors"), "")
	}),
	volumeWithin("iscsi", func(s *pvSource) *corev1.ISCSIPersistentVolumeSource { return s.ISCSI }, func(s *corev1.ISCSIPersistentVolumeSource, in volumeIn, at *field.Path) field.ErrorList {
		at = at.Child("iscsi")
		target := iscsiTarget{s.TargetPortal, s.IQN, s.Lun, s.InitiatorName, (s.DiscoveryCHAPAuth || s.SessionCHAPAuth) && s.SecretRef == nil}
		tooLong := refuse(s.InitiatorName != nil && len(in.name+":"+s.TargetPortal) > 64, at.Child("targetportal"), s.TargetPortal, iscsiNameTooLong)
		errs := target.faults(at, "must be valid format", tooLong)
		if s.SecretRef != nil {
			errs = append(errs, required(s.SecretRef.Name, at.Child("secretRef", "name"))...)
		}
		return errs
	}),
	volume("cinder", func(s *pvSource) *corev1.CinderPersistentVolumeSource { return s.Cinder }, func(d *corev1.CinderPersistentVolumeSource, at *field.Path) field.ErrorList {
		at = at.Child("cinder")
		errs := requiredFields(at, "volumeID", d.VolumeID)
		if d.SecretRef != nil {
			errs = append(errs, requiredFields(at.Child("secretRef"), "name", d.SecretRef.Name, "namespace", d.SecretRef.Namespace)...)
		}
		return errs
	}),
	volume("fc", func(s *pvSource) *corev1.FCVolumeSource { return s.FC }, validFC),
	volume("flexVolume", func(s *pvSource) *corev1.FlexPersistentVolumeSource { return s.FlexVolume }, func(f *corev1.FlexPersistentVolumeSource, at *field.Path) field.ErrorList {
		return validFlex(f.Driver, f.Options, at.Child("flexVolume"))
	}),
	volume("azureFile", func(s *pvSource) *corev1.AzureFilePersistentVolumeSource { return s.AzureFile }, func(f *corev1.AzureFilePersistentVolumeSource, at *field.Path) field.ErrorList {
		at = at.Child("azureFile")
		errs := requiredFields(at, "secretName", f.SecretName, "shareName", f.ShareName)
		return append(errs, need(f.SecretNamespace != nil && *f.SecretNamespace == "", at.Child("secretNamespace"), "")...)
	}),
	volume("vsphereVolume", func(s *pvSource) *corev1.VsphereVirtualDiskVolumeSource { return s.VsphereVolume }, validVsphere),
	volume("photonPersistentDisk", func(s *pvSource) *corev1.PhotonPersistentDiskVolumeSource { return s.PhotonPersistentDisk }, validPhoton),
	volume("portworxVolume", func(s *pvSource) *corev1.PortworxVolumeSource { return s.PortworxVolume }, validPortworx),
	volume("azureDisk", func(s *pvSource) *corev1.AzureDiskVolumeSource { return s.AzureDisk }, validAzureDisk),
	volume("scaleIO", func(s *pvSource) *corev1.ScaleIOPersistentVolumeSource { return s.ScaleIO }, func(o *corev1.ScaleIOPersistentVolumeSource, at *field.Path) field.ErrorList {
		return requiredFields(at.Child("scaleIO"), "gateway", o.Gateway, "system", o.System, "volumeName", o.VolumeName)
	}),
	volumeWithin("local", func(s *pvSource) *corev1.LocalVolumeSource { return s.Local }, func(l *corev1.LocalVolumeSource, in volumeIn, at *field.Path) field.ErrorList {
		errs := validHostFile(l.Path, at.Child("local", "path"))
		return append(errs, need(!in.affine, at.Child("nodeAffinity"), "Local volume requires node affinity")...)
	}),
	volume("storageos", func(s *pvSource) *corev1.StorageOSPersistentVolumeSource { return s.StorageOS }, func(o *corev1.StorageOSPersistentVolumeSource, at *field.Path) field.ErrorList {
		at = at.Child("storageos")
		errs := validStorageOS(o.VolumeName, o.VolumeNamespace, at)
		if o.SecretRef != nil {
			errs = append(errs, requiredFields(at.Child("secretRef"), "name", o.SecretRef.Name, "namespace", o.SecretRef.Namespace)...)
		}
		return errs
	}),
	volume("csi", func(s *pvSource) *corev1.CSIPersistentVolumeSource { return s.CSI }, validCSI),
}

// validVolumes checks the pod's volumes and notes those that may be mounted.
func (c *podCheck) validVolumes(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	c.volumes = map[string]*corev1.Volume{}
	for i := range c.spec.Volumes {
		v, here := &c.spec.Volumes[i], at.Index(i)
		bad := validSource(&v.VolumeSource, podVolumeTypes, volumeIn{pod: c, name: v.Name}, here)
		bad = append(bad, requiredValid(v.Name, here.Child("name"), label)...)
		if c.volumes[v.Name] != nil {
			bad = append(bad, field.Duplicate(here.Child("name"), v.Name))
		}
		if len(bad) == 0 {
			c.volumes[v.Name] = v
		}
		errs = append(errs, bad...)
		if p := v.PersistentVolumeClaim; p != nil && c.makesClaim(p.ClaimName) {
			errs = append(errs, field.Invalid(here.Child("persistentVolumeClaim", "claimName"), p.ClaimName, "must not reference a PVC that gets created for an ephemeral volume"))
		}
	}
	return errs
}

// makesClaim reports whether a claim of this name will be made for the pod.
func (c *podCheck) makesClaim(name string) bool {
	return c.meta != nil && c.meta.Name != "" && slices.ContainsFunc(c.spec.Volumes, func(v corev1.Volume) bool {
		return v.Ephemeral != nil && name == c.meta.Name+"-"+v.Name
	})
}

func (c *podCheck) validEphemeralVolume(e *corev1.EphemeralVolumeSource, name string, at *field.Path) field.ErrorList {
	here := at.Child("ephemeral", "volumeClaimTemplate")
	errs := need(e.VolumeClaimTemplate == nil, here, "")
	if t := e.VolumeClaimTemplate; t != nil {
		errs = validClaimTemplateMeta(&t.ObjectMeta, here.Child("metadata"))
		errs = append(errs, validClaimSpec(&t.Spec, nil, here.Child("spec"))...)
	}
	if c.meta != nil && c.meta.Name != "" && name != "" {
		claim := c.meta.Name + "-" + name
		for _, why := range subdomain(claim) {
			errs = append(errs, field.Invalid(at.Child("name"), name, fmt.Sprintf("PVC name %q: %v", claim, why)))
		}
	}
	return errs
}

// validClaimTemplateMeta lets a template have labels and annotations, and no more.
func validClaimTemplateMeta(m *metav1.ObjectMeta, at *field.Path) field.ErrorList {
	errs := apivalidation.ValidateAnnotations(m.Annotations, at.Child("annotations"))
	errs = append(errs, metavalidation.ValidateLabels(m.Labels, at.Child("labels"))...)
	return append(errs, onlyFields(*m, at, "cannot be set", "Annotations", "Labels")...)
}

func validEmptyDir(e *corev1.EmptyDirVolumeSource, at *field.Path) field.ErrorList {
	return forbid(e.SizeLimit != nil && e.SizeLimit.Sign() < 0, at.Child("emptyDir", "sizeLimit"), "SizeLimit field must be a valid resource quantity")
}

func validHostPath(h *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	at = at.Child("hostPath")
	errs := validHostFile(h.Path, at.Child("path"))
	if h.Path == "" {
		return errs
	}
	return append(errs, amongIfSet(h.Type, at.Child("type"), corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
		corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)...)
}

func validHostFile(p string, at *field.Path) field.ErrorList {
	return append(required(p, at), noBacksteps(p, at)...)
}

func validGitRepo(g *corev1.GitRepoVolumeSource, at *field.Path) field.ErrorList {
	at = at.Child("gitRepo")
	return append(requiredFields(at, "repository", g.Repository), validLocalPath(g.Directory, at.Child("directory"))...)
}

func validGCEDisk(d *corev1.GCEPersistentDiskVolumeSource, at *field.Path) field.ErrorList {
	at = at.Child("persistentDisk")
	return append(requiredFields(at, "pdName", d.PDName), validPartition(d.Partition, at)...)
}

func validAWSDisk(d *corev1.AWSElasticBlockStoreVolumeSource, at *field.Path) field.ErrorList {
	at = at.Child("awsElasticBlockStore")
	return append(requiredFields(at, "volumeID", d.VolumeID), validPartition(d.Partition, at)...)
}

// validPartition lets 0 stand for none.
func validPartition(n int32, at *field.Path) field.ErrorList {
	return refuse(n < 0 || n > 255, at.Child("partition"), n, validation.InclusiveRangeError(1, 255))
}

func validVsphere(v *corev1.VsphereVirtualDiskVolumeSource, at *field.Path) field.ErrorList {
	return requiredFields(at.Child("vsphereVolume"), "volumePath", v.VolumePath)
}

func validPhoton(d *corev1.PhotonPersistentDiskVolumeSource, at *field.Path) field.ErrorList {
	return requiredFields(at.Child("photonPersistentDisk"), "pdID", d.PdID)
}

func validPortworx(v *corev1.PortworxVolumeSource, at *field.Path) field.ErrorList {
	return requiredFields(at.Child("portworxVolume"), "volumeID", v.VolumeID)
}

func validNFS(n *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
	at = at.Child("nfs")
	return append(requiredFields(at, "server", n.Server, "path", n.Path), refuse(!path.IsAbs(n.Path), at.Child("path"), n.Path, "must be an absolute path")...)
}

func validRBD(monitors []string, image string, at *field.Path) field.ErrorList {
	return append(need(len(monitors) == 0, at.Child("monitors"), ""), requiredFields(at, "image", image)...)
}

func validGlusterPV(g *corev1.GlusterfsPersistentVolumeSource, at *field.Path) field.ErrorList {
	at = at.Child("glusterfs")
	errs := requiredFields(at, "endpoints", g.EndpointsName, "path", g.Path)
	ns, at := g.EndpointsNamespace, at.Child("endpointsNamespace")
	if ns != nil && *ns == "" {
		return append(errs, field.Invalid(at, *ns, "if the endpointnamespace is set, it must be a valid namespace name"))
	}
	return append(errs, validPtr(ns, at, label)...)
}

func validFlocker(f *corev1.FlockerVolumeSource, at *field.Path) field.ErrorList {
	at = at.Child("flocker")
	errs := need(f.DatasetName == "" && f.DatasetUUID == "", at, "one of datasetName and datasetUUID is required")
	errs = append(errs, refuse(f.DatasetName != "" && f.DatasetUUID != "", at, "resource", "datasetName and datasetUUID can not be specified simultaneously")...)
	return append(errs, refuse(strings.Contains(f.DatasetName, "/"), at.Child("datasetName"), f.DatasetName, "must not contain '/'")...)
}

func validQuobyte(q *corev1.QuobyteVolumeSource, at *field.Path) field.ErrorList {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	at = at.Child("quobyte")
	var errs field.ErrorList
	switch {
	case q.Registry == "":
		errs = append(errs, field.Required(at.Child("registry"), pairs))
	case len(q.Tenant) > 64:
		errs = append(errs, field.Required(at.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters"))
	default:
		for _, pair := range strings.Split(q.Registry, ",") {
			_, _, err := net.SplitHostPort(pair)
			errs = append(errs, refuse(err != nil, at.Child("registry"), q.Registry, pairs)...)
		}
	}
	return append(errs, requiredFields(at, "volume", q.Volume)...)
}

func validFC(f *corev1.FCVolumeSource, at *field.Path) field.ErrorList {
	at = at.Child("fc")
	errs := need(len(f.TargetWWNs)+len(f.WWIDs) == 0, at.Child("targetWWNs"), "must specify either targetWWNs or wwids, but not both")
	errs = append(errs, refuse(len(f.TargetWWNs) > 0 && len(f.WWIDs) > 0, at.Child("targetWWNs"), f.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously")...)
	if len(f.TargetWWNs) == 0 {
		return errs
	}
	if f.Lun == nil {
		return append(errs, field.Required(at.Child("lun"), "lun is required if targetWWNs is specified"))
	}
	return append(errs, refuse(*f.Lun < 0 || *f.Lun > 255, at.Child("lun"), f.Lun, validation.InclusiveRangeError(0, 255))...)
}

func validFlex(driver string, options map[string]string, at *field.Path) field.ErrorList {
	errs := requiredFields(at, "driver", driver)
	for _, key := range sortedKeys(options) {
		domain, _, _ := strings.Cut(key, "/")
		domain = "." + strings.ToLower(domain)
		ours := strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io")
		errs = append(errs, refuse(ours, at.Child("options").Key(key), key, "kubernetes.io and k8s.io namespaces are reserved")...)
	}
	return errs
}

func validAzureDisk(d *corev1.AzureDiskVolumeSource, at *field.Path) field.ErrorList {
	at = at.Child("azureDisk")
	errs := requiredFields(at, "diskName", d.DiskName, "diskURI", d.DataDiskURI)
	errs = append(errs, amongIfSet(d.CachingMode, at.Child("cachingMode"), corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)...)
	errs = append(errs, amongIfSet(d.Kind, at.Child("kind"), corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk)...)
	prefix, form := "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if d.Kind != nil && *d.Kind == corev1.AzureManagedDisk {
		prefix, form = "/subscriptions/", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if d.Kind != nil && !strings.HasPrefix(d.DataDiskURI, prefix) {
		errs = append(errs, field.NotSupported(at.Child("diskURI"), d.DataDiskURI, []string{form}))
	}
	return errs
}

func validStorageOS(name, namespace string, at *field.Path) field.ErrorList {
	errs := requiredValid(name, at.Child("volumeName"), label)
	return append(errs, validIfSet(namespace, at.Child("volumeNamespace"), label)...)
}

func validLocalRef(ref *corev1.LocalObjectReference, at *field.Path) field.ErrorList {
	if ref == nil {
		return nil
	}
	return required(ref.Name, at.Child("secretRef", "name"))
}

// validDriverName wants the name of a CSI driver: a domain of a label's length.
func validDriverName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return required(name, at)
	}
	var errs field.ErrorList
	if len(name) > validation.DNS1123LabelMaxLength {
		errs = append(errs, field.TooLong(at, "", validation.DNS1123LabelMaxLength))
	}
	return append(errs, invalid(at, name, subdomain(strings.ToLower(name)))...)
}

func validInlineCSI(s *corev1.CSIVolumeSource, at *field.Path) field.ErrorList {
	at = at.Child("csi")
	errs := validDriverName(s.Driver, at.Child("driver"))
	if ref := s.NodePublishSecretRef; ref != nil {
		errs = append(errs, required(ref.Name, at.Child("nodePublishSecretRef", "name"))...)
		errs = append(errs, validIfSet(ref.Name, at.Child("name"), subdomain)...)
	}
	return errs
}

func validCSI(s *corev1.CSIPersistentVolumeSource, at *field.Path) field.ErrorList {
	at = at.Child("csi")
	errs := append(validDriverName(s.Driver, at.Child("driver")), requiredFields(at, "volumeHandle", s.VolumeHandle)...)
	for _, ref := range []struct {
		name string
		*corev1.SecretReference
	}{
		{"controllerPublishSecretRef", s.ControllerPublishSecretRef}, {"controllerExpandSecretRef", s.ControllerExpandSecretRef},
		{"nodePublishSecretRef", s.NodePublishSecretRef}, {"nodeExpandSecretRef", s.NodeExpandSecretRef},
	} {
		if ref.SecretReference != nil {
			errs = append(errs, requiredValid(ref.Name, at.Child(ref.name, "name"), subdomain)...)
			errs = append(errs, requiredValid(ref.Namespace, at.Child(ref.name, "namespace"), label)...)
		}
	}
	return errs
}

const iscsiNameTooLong = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."

var iscsiNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

// iscsiTarget is what the iSCSI sources of pods and PersistentVolumes have in common.
type iscsiTarget struct {
	portal, iqn string
	lun         int32
	initiator   *string
	secretless  bool // authenticates, but has no secret for it
}

// faults names those of a target; portal are further ones, of its portal.
func (t iscsiTarget) faults(at *field.Path, unknownForm string, portal field.ErrorList) field.ErrorList {
	errs := append(requiredFields(at, "targetPortal", t.portal), portal...)
	errs = append(errs, required(t.iqn, at.Child("iqn"))...)
	if t.iqn != "" {
		errs = append(errs, validISCSIName(t.iqn, at.Child("iqn"), unknownForm)...)
	}
	errs = append(errs, inRange(t.lun, 0, 255, at.Child("lun"))...)
	errs = append(errs, need(t.secretless, at.Child("secretRef"), "")...)
	if t.initiator != nil {
		errs = append(errs, validISCSIName(*t.initiator, at.Child("initiatorname"), unknownForm)...)
	}
	return errs
}

func validISCSIName(name string, at *field.Path, unknownForm string) field.ErrorList {
	form, ok := iscsiNames[name[:min(3, len(name))]]
	if !ok {
		return field.ErrorList{field.Invalid(at, name, unknownForm)}
	}
	return refuse(!form.MatchString(name), at, name, "must be valid format")
}

// validFiles checks a ConfigMap's or Secret's volume.
func validFiles(nameField, name string, mode *int32, items []corev1.KeyToPath, at *field.Path) field.ErrorList {
	errs := append(requiredFields(at, nameField, name), validMode(mode, at.Child("defaultMode"))...)
	return append(errs, validKeys(items, at.Child("items"))...)
}

func validMode(mode *int32, at *field.Path) field.ErrorList {
	if mode == nil {
		return nil
	}
	return refuse(*mode < 0 || *mode > 0o777, at, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
}

func validKeys(items []corev1.KeyToPath, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, item := range items {
		errs = append(errs, validKey(item, at.Index(i))...)
	}
	return errs
}

func validKey(item corev1.KeyToPath, at *field.Path) field.ErrorList {
	errs := requiredFields(at, "key", item.Key, "path", item.Path)
	errs = append(errs, validLocalFile(item.Path, at.Child("path"))...)
	return append(errs, validMode(item.Mode, at.Child("mode"))...)
}

// validFilePath is the path of a file that a volume writes.
func validFilePath(p string, at *field.Path) field.ErrorList {
	return append(required(p, at), validLocalFile(p, at)...)
}

// validLocalFile keeps a file inside its volume, and off the names that the volume
// needs itself.
func validLocalFile(p string, at *field.Path) field.ErrorList {
	errs := validLocalPath(p, at)
	return append(errs, refuse(strings.HasPrefix(p, "..") && !strings.HasPrefix(p, "../"), at, p, "must not start with '..'")...)
}

// validLocalPath keeps a path inside the place that it is relative to.
func validLocalPath(p string, at *field.Path) field.ErrorList {
	return append(refuse(path.IsAbs(p), at, p, "must be a relative path"), noBacksteps(p, at)...)
}

func noBacksteps(p string, at *field.Path) field.ErrorList {
	return refuse(slices.Contains(strings.Split(p, "/"), ".."), at, p, "must not contain '..'")
}

// validDownwardFile checks a file of the downward API. Its faults do not tell which
// file it is.
func validDownwardFile(f *corev1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	errs := validFilePath(f.Path, at.Child("path"))
	switch {
	case f.FieldRef != nil:
		errs = append(errs, validFieldRef(f.FieldRef, fileFields, at.Child("fieldRef"))...)
		errs = append(errs, refuse(f.ResourceFieldRef != nil, at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")...)
	case f.ResourceFieldRef != nil:
		errs = append(errs, validResourceRef(f.ResourceFieldRef, true, at.Child("resourceFieldRef"))...)
	default:
		errs = append(errs, field.Required(at, "one of fieldRef and resourceFieldRef is required"))
	}
	return append(errs, validMode(f.Mode, at.Child("mode"))...)
}
