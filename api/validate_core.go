package api

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// ValidateConfigMap names the faults of a ConfigMap.
func ValidateConfigMap(c, old *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	if old != nil && old.Immutable != nil && *old.Immutable {
		errs = append(errs, validSeal(c.Immutable, equality.Semantic.DeepEqual(c.Data, old.Data), "data")...)
		errs = append(errs, validSeal(nil, equality.Semantic.DeepEqual(c.BinaryData, old.BinaryData), "binaryData")...)
	}
	total := 0
	for _, key := range sortedKeys(c.Data) {
		at := field.NewPath("data").Key(key)
		errs = append(errs, invalid(at, key, validation.IsConfigMapKey(key))...)
		_, both := c.BinaryData[key]
		errs = append(errs, refuse(both, at, key, "duplicate of key present in binaryData")...)
		total += len(c.Data[key])
	}
	for _, key := range sortedKeys(c.BinaryData) {
		errs = append(errs, invalid(field.NewPath("binaryData").Key(key), key, validation.IsConfigMapKey(key))...)
		total += len(c.BinaryData[key])
	}
	if total > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

// validSeal says what may not change once an object is immutable. A nil flag
// with the field "binaryData" was reported already.
func validSeal(flag *bool, same bool, name string) field.ErrorList {
	var errs field.ErrorList
	if name == "data" && (flag == nil || !*flag) {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set"))
	}
	if !same {
		errs = append(errs, field.Forbidden(field.NewPath(name), "field is immutable when `immutable` is set"))
	}
	return errs
}

// ValidateSecret names the faults of a Secret.
func ValidateSecret(s, old *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	if old != nil {
		errs = append(errs, unchanged(s.Type, old.Type, field.NewPath("type"))...)
		if old.Immutable != nil && *old.Immutable {
			errs = append(errs, validSeal(s.Immutable, equality.Semantic.DeepEqual(s.Data, old.Data), "data")...)
		}
	}
	data, total := field.NewPath("data"), 0
	for _, key := range sortedKeys(s.Data) {
		errs = append(errs, invalid(data.Key(key), key, validation.IsConfigMapKey(key))...)
		total += len(s.Data[key])
	}
	if total > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(data, "", corev1.MaxSecretSize))
	}
	return append(errs, validSecretType(s)...)
}

// validSecretType wants what the readers of a type expect to find.
func validSecretType(s *corev1.Secret) field.ErrorList {
	data := field.NewPath("data")
	need := func(keys ...string) field.ErrorList {
		var errs field.ErrorList
		for _, key := range keys {
			if _, ok := s.Data[key]; !ok {
				errs = append(errs, field.Required(data.Key(key), ""))
			}
		}
		return errs
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			return field.ErrorList{field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), "")}
		}
	case corev1.SecretTypeDockercfg:
		return validJSONKey(s, corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		return validJSONKey(s, corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			return need(corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			return field.ErrorList{field.Required(data.Key(corev1.SSHAuthPrivateKey), "")}
		}
	case corev1.SecretTypeTLS:
		return need(corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	return nil
}

func validJSONKey(s *corev1.Secret, key string) field.ErrorList {
	at := field.NewPath("data").Key(key)
	value, ok := s.Data[key]
	if !ok {
		return field.ErrorList{field.Required(at, "")}
	}
	var parsed map[string]any
	if err := json.Unmarshal(value, &parsed); err != nil {
		return field.ErrorList{field.Invalid(at, "<secret contents redacted>", err.Error())}
	}
	return nil
}

// ValidateNamespace names the faults of a namespace. Those of finalizers do not tell
// which one it is.
func ValidateNamespace(ns, _ *corev1.Namespace) field.ErrorList {
	return validFinalizers(ns.Spec.Finalizers, func(int) *field.Path { return specPath().Child("finalizers") })
}

// ValidateNamespaceFinalize names the faults of other finalizers of a namespace.
func ValidateNamespaceFinalize(ns, _ *corev1.Namespace) field.ErrorList {
	return validFinalizers(ns.Spec.Finalizers, specPath().Child("finalizers").Index)
}

func validFinalizers(finalizers []corev1.FinalizerName, at func(int) *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, f := range finalizers {
		errs = append(errs, apivalidation.ValidateFinalizerName(string(f), at(i))...)
		errs = append(errs, validFinalizerName(string(f), at(i))...)
	}
	return errs
}

// ValidateNode names the faults of a node. Those of taints are told of as if they
// were metadata.
func ValidateNode(n, old *corev1.Node) field.ErrorList {
	metadata, cidrs := field.NewPath("metadata"), specPath().Child("podCIDRs")
	errs := validTaints(n.Spec.Taints, metadata.Child("taints"))
	errs = append(errs, validNodeResources(n)...)
	if swap := n.Status.NodeInfo.Swap; swap != nil && swap.Capacity != nil {
		errs = append(errs, positive64(*swap.Capacity, metadata.Child("nodeSwapStatus", "capacity"))...)
	}
	errs = append(errs, validFeatures(n.Status.DeclaredFeatures, field.NewPath("status", "declaredFeatures"))...)
	for i, cidr := range n.Spec.PodCIDRs {
		errs = append(errs, validLegacyCIDR(cidr, cidrs.Index(i), nil)...)
	}
	if len(n.Spec.PodCIDRs) > 1 {
		both, err := netutils.IsDualStackCIDRStrings(n.Spec.PodCIDRs)
		if err != nil {
			errs = append(errs, field.InternalError(cidrs, fmt.Errorf("invalid PodCIDRs. failed to check with dual stack with error:%w", err)))
		}
		errs = append(errs, refuse(!both || len(n.Spec.PodCIDRs) > 2, cidrs, n.Spec.PodCIDRs, "may specify no more than one CIDR for each IP family")...)
	}
	if old != nil {
		errs = append(errs, ValidateNodeStatus(n, old)...)
	}
	return errs
}

// ValidateNodeStatus names the faults of a changed node, in its status and what may
// not change.
func ValidateNodeStatus(n, old *corev1.Node) field.ErrorList {
	errs := validNodeResources(n)
	errs = append(errs, validFeatures(n.Status.DeclaredFeatures, field.NewPath("status", "declaredFeatures"))...)
	seen := map[corev1.NodeAddress]bool{}
	for i, a := range n.Status.Addresses {
		if seen[a] {
			errs = append(errs, field.Duplicate(field.NewPath("status", "addresses").Index(i), inner{a}))
		}
		seen[a] = true
	}
	at := specPath()
	moved := len(old.Spec.PodCIDRs) > 0 && !slices.Equal(n.Spec.PodCIDRs, old.Spec.PodCIDRs)
	errs = append(errs, forbid(moved, at.Child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid")...)
	if was, is := old.Spec.ProviderID, n.Spec.ProviderID; was != "" {
		errs = append(errs, refuse(is != "" && is != was, at.Child("providerID"), nil, "field cannot be modified once set")...)
		errs = append(errs, refuse(is == "", at.Child("providerID"), nil, "field cannot be cleared once set")...)
	}
	if n.Spec.ConfigSource != nil {
		errs = append(errs, validConfigSource(n.Spec.ConfigSource, false, at.Child("configSource"))...)
	}
	if c := n.Status.Config; c != nil {
		for _, part := range []struct {
			name string
			*corev1.NodeConfigSource
		}{{"assigned", c.Assigned}, {"active", c.Active}, {"lastKnownGood", c.LastKnownGood}} {
			if part.NodeConfigSource != nil {
				errs = append(errs, validConfigSource(part.NodeConfigSource, true, field.NewPath("status", "config", part.name))...)
			}
		}
	}
	errs = append(errs, validTaints(n.Spec.Taints, field.NewPath("metadata", "taints"))...)
	return append(errs, forbid(n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID, at.Child("externalID"), "may not be updated")...)
}

func validNodeResources(n *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name string
		corev1.ResourceList
	}{{"capacity", n.Status.Capacity}, {"allocatable", n.Status.Allocatable}} {
		for _, name := range sortedKeys(list.ResourceList) {
			errs = append(errs, validQuantity(name, list.ResourceList[name], field.NewPath("status", list.name, string(name)))...)
		}
	}
	return errs
}

var featureName = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*$`)

// validFeatures wants the features that a node declares to be in order.
func validFeatures(features []string, at *field.Path) field.ErrorList {
	const longest = validation.DNS1123SubdomainMaxLength
	var errs field.ErrorList
	for i, f := range features {
		switch {
		case len(f) > longest:
			errs = append(errs, field.Invalid(at.Index(i), f, fmt.Sprintf("invalid feature name %q: must be no more than %d characters", f, longest)))
		case !featureName.MatchString(f):
			errs = append(errs, field.Invalid(at.Index(i), f, fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes", f)))
		}
		if i+1 == len(features) {
			break
		}
		next := features[i+1]
		if f == next {
			errs = append(errs, field.Duplicate(at.Index(i+1), next))
		}
		errs = append(errs, refuse(f > next, at.Index(i+1), next, "list must be sorted alphabetically")...)
	}
	return errs
}

// validConfigSource checks where a node has its configuration from; found says that
// it was read there already.
func validConfigSource(s *corev1.NodeConfigSource, found bool, at *field.Path) field.ErrorList {
	c := s.ConfigMap
	if c == nil {
		return refuse(true, at, s, "exactly one reference subfield must be non-nil")
	}
	here := at.Child("configMap")
	var errs field.ErrorList
	if found {
		errs = requiredFields(here, "uid", string(c.UID), "resourceVersion", c.ResourceVersion)
	} else {
		errs = forbid(c.UID != "", here.Child("uid"), "uid must not be set in spec")
		errs = append(errs, forbid(c.ResourceVersion != "", here.Child("resourceVersion"), "resourceVersion must not be set in spec")...)
	}
	errs = append(errs, requiredValid(c.Namespace, here.Child("namespace"), label)...)
	errs = append(errs, requiredValid(c.Name, here.Child("name"), subdomain)...)
	return append(errs, requiredValid(c.KubeletConfigKey, here.Child("kubeletConfigKey"), validation.IsConfigMapKey)...)
}

func validTaints(taints []corev1.Taint, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, t := range taints {
		here := at.Index(i)
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, here.Child("key"))...)
		bad := validation.IsValidLabelValue(t.Value)
		errs = append(errs, refuse(len(bad) > 0, here.Child("value"), t.Value, strings.Join(bad, ";"))...)
		errs = append(errs, validTaintEffect(t.Effect, here.Child("effect"))...)
		key := t.Key + ":" + string(t.Effect)
		if seen[key] {
			err := field.Duplicate(here, inner{t})
			err.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, err)
		}
		seen[key] = true
	}
	return errs
}

// ValidatePodTemplate names the faults of a PodTemplate object.
func ValidatePodTemplate(t, old *corev1.PodTemplate) field.ErrorList {
	if old == nil {
		return validTemplate(&t.Template, nil, field.NewPath("template"))
	}
	return validTemplate(&t.Template, &old.Template, field.NewPath("template"))
}

// ValidateEvent names the faults of an event as core/v1 has it.
func ValidateEvent(e, _ *corev1.Event) field.ErrorList { return validEvent(e, "reportingComponent") }

// ValidateNewEvent names the faults of an event that comes by way of events.k8s.io.
// It may not be changed, but for its series.
func ValidateNewEvent(e, old *corev1.Event) field.ErrorList {
	errs := validEvent(e, "reportingController")
	if old == nil {
		return append(errs, validNewEvent(e)...)
	}
	was, is := old.EventTime, e.EventTime
	if is.Truncate(time.Microsecond).Equal(was.Truncate(time.Microsecond)) {
		is = was // some clients cut off what is finer
	}
	if !equality.Semantic.DeepEqual(e.Series, old.Series) {
		errs = append(errs, validSeries(e.Series)...)
	}
	for _, f := range []struct {
		name     string
		now, old any
	}{
		{"involvedObject", e.InvolvedObject, old.InvolvedObject}, {"reason", e.Reason, old.Reason}, {"message", e.Message, old.Message},
		{"source", e.Source, old.Source}, {"firstTimestamp", e.FirstTimestamp, old.FirstTimestamp}, {"lastTimestamp", e.LastTimestamp, old.LastTimestamp},
		{"count", e.Count, old.Count}, {"type", e.Type, old.Type},
		{"eventTime", is, was},
		{"action", e.Action, old.Action}, {"related", e.Related, old.Related},
		{"reportingController", e.ReportingController, old.ReportingController}, {"reportingInstance", e.ReportingInstance, old.ReportingInstance},
	} {
		errs = append(errs, unchanged(f.now, f.old, field.NewPath(f.name))...)
	}
	return errs
}

// validNewEvent wants an event without what the older form has.
func validNewEvent(e *corev1.Event) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&e.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, ValidateFinalizerNames(schema.GroupResource{Group: eventsv1.GroupName}, e.Finalizers)...)
	errs = append(errs, validSeries(e.Series)...)
	errs = append(errs, need(e.EventTime.IsZero(), field.NewPath("eventTime"), "")...)
	errs = append(errs, refuse(e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning, field.NewPath("type"), "", "has invalid value: "+e.Type)...)
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"firstTimestamp", !e.FirstTimestamp.IsZero()}, {"lastTimestamp", !e.LastTimestamp.IsZero()},
		{"count", e.Count != 0}, {"source", e.Source != corev1.EventSource{}},
	} {
		errs = append(errs, refuse(f.set, field.NewPath(f.name), "", "needs to be unset")...)
	}
	return errs
}

func validSeries(s *corev1.EventSeries) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := refuse(s.Count < 2, field.NewPath("series.count"), "", "should be at least 2")
	return append(errs, need(s.LastObservedTime.IsZero(), field.NewPath("series.lastObservedTime"), "")...)
}

// validEvent checks what every event must be; those that have a time, which are
// younger, must say more.
func validEvent(e *corev1.Event, controllerName string) field.ErrorList {
	about, object := e.InvolvedObject.Namespace, field.NewPath("involvedObject", "namespace")
	const elsewhere = "does not match event.namespace"
	if e.EventTime.IsZero() {
		nowhere := about == "" && (e.Namespace == "" || e.Namespace == corev1.NamespaceDefault)
		return refuse(about != e.Namespace && !nowhere, object, about, elsewhere)
	}
	errs := refuse(about == "" && e.Namespace != corev1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem, object, about, elsewhere)
	errs = append(errs, required(e.ReportingController, field.NewPath(controllerName))...)
	errs = append(errs, invalid(field.NewPath(controllerName), e.ReportingController, validation.IsQualifiedName(e.ReportingController))...)
	for _, f := range []struct {
		name, value string
		longest     int
	}{{"reportingInstance", e.ReportingInstance, 128}, {"action", e.Action, 128}, {"reason", e.Reason, 128}, {"message", e.Message, 1024}} {
		at := field.NewPath(f.name)
		errs = append(errs, need(f.value == "" && f.name != "message", at, "")...)
		errs = append(errs, refuse(len(f.value) > f.longest, at, "", fmt.Sprintf("can have at most %v characters", f.longest))...)
	}
	return errs
}
