package interchange

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"orrery.dev/test/conformance/lab"
)

//go:embed testdata/objects.yaml
var objectsYAML string

// objectSet is the objects of testdata/objects.yaml under a name of their own.
type objectSet struct {
	who     string
	objects []*unstructured.Unstructured
}

func newObjectSet(t *testing.T, p *lab.PKI, who, address string) *objectSet {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "somebody"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := os.ReadFile(p.File("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	quoted := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	text := strings.NewReplacer("IP-OF-WHO", address, "WHO", who, "TRUST-BUNDLE", quoted(string(bundle)),
		"CERTIFICATE-REQUEST", quoted(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))).Replace(objectsYAML)
	s := &objectSet{who: who}
	for doc := range strings.SplitSeq(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(doc), &o.Object); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		s.objects = append(s.objects, o)
	}
	return s
}

// api reads and writes objects of any kind through whichever server runs.
type api struct {
	t       *testing.T
	ctx     context.Context
	disco   discovery.DiscoveryInterface
	dynamic dynamic.Interface
}

func newAPI(t *testing.T, s *setup) *api {
	t.Helper()
	disco, err := discovery.NewDiscoveryClientForConfig(s.admin)
	if err != nil {
		t.Fatal(err)
	}
	_, untyped := s.clients()
	return &api{t: t, ctx: t.Context(), disco: disco, dynamic: untyped}
}

// resource finds where an object's kind is served, and waits for it if need be.
func (a *api) resource(o *unstructured.Unstructured, namespace string) dynamic.ResourceInterface {
	a.t.Helper()
	var mapping *meta.RESTMapping
	ctx, cancel := context.WithTimeout(a.ctx, 10*time.Second)
	defer cancel()
	err := lab.Eventually(ctx, func(context.Context) (string, error) {
		groups, err := restmapper.GetAPIGroupResources(a.disco)
		if err != nil {
			return "", err
		}
		mapping, err = restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
		return "", err
	})
	if err != nil {
		a.t.Errorf("%s is not served: %v", o.GroupVersionKind(), err)
		return nil
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return a.dynamic.Resource(mapping.Resource).Namespace(namespace)
	}
	return a.dynamic.Resource(mapping.Resource)
}

// create makes all objects of a set.
func (a *api) create(s *objectSet) {
	a.t.Helper()
	for _, o := range s.objects {
		resource := a.resource(o, s.who)
		if resource == nil {
			continue
		}
		if _, err := resource.Create(a.ctx, o, metav1.CreateOptions{FieldManager: "maker"}); err != nil && !apierrors.IsAlreadyExists(err) {
			a.t.Errorf("create %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// touch gives every object of a set an annotation.
func (a *api) touch(s *objectSet, by maker) {
	a.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.org/touched":%q}}}`, by)
	for _, o := range s.objects {
		resource := a.resource(o, s.who)
		if resource == nil {
			continue
		}
		if _, err := resource.Patch(a.ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "toucher"}); err != nil {
			a.t.Errorf("patch %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// objects are what a server shows, by group, version, resource, namespace and
// name.
type objects map[string]*unstructured.Unstructured

// stored lists the kinds that can be made and read again, in all versions.
func (a *api) stored() []metav1.APIResource {
	a.t.Helper()
	_, lists, err := a.disco.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // there is an APIService without a server
		a.t.Fatal(err)
	}
	var all []metav1.APIResource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			a.t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "create") && !strings.Contains(r.Name, "/") {
				r.Group, r.Version = gv.Group, gv.Version
				all = append(all, r)
			}
		}
	}
	return all
}

// readAll reads everything that the server has.
func (a *api) readAll() objects {
	a.t.Helper()
	found := objects{}
	for _, r := range a.stored() {
		gvr := schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Name}
		list, err := a.dynamic.Resource(gvr).List(a.ctx, metav1.ListOptions{})
		if err != nil {
			a.t.Errorf("list %s: %v", gvr, err)
			continue
		}
		for i := range list.Items {
			o := &list.Items[i]
			found[fmt.Sprintf("%s/%s/%s %s/%s", r.Group, r.Version, r.Name, o.GetNamespace(), called(o))] = o
		}
	}
	return found
}

// called is an object's name, or what a reserved address is for.
func called(o *unstructured.Unstructured) string {
	if o.GetKind() != "IPAddress" {
		return o.GetName()
	}
	namespace, _, _ := unstructured.NestedString(o.Object, "spec", "parentRef", "namespace")
	name, _, _ := unstructured.NestedString(o.Object, "spec", "parentRef", "name")
	return fmt.Sprint(namespace, " ", name, " ", len(o.GetLabels()) > 0)
}

// of are the objects that belong to a set, which have its name in theirs.
func (all objects) of(who string) objects {
	mine := objects{}
	for key, o := range all {
		if strings.Contains(key, who) {
			mine[key] = o
		}
	}
	return mine
}

// What two objects that were made the same way may differ in.
var differing = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z`), "TIME$1"},
	{regexp.MustCompile(`TIME\.\d{6}`), "TIME.MICRO"},
	{regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`), "kube-api-access"},
	{regexp.MustCompile(`(10\.96\.\d+|198\.51\.100)\.\d+`), "SERVICE-IP"},
	{regexp.MustCompile(`"(nodePort|healthCheckNodePort)":\d+`), `"$1":0`},
	{regexp.MustCompile(`"resourceVersion":"\d+"`), `"resourceVersion":""`},
	{regexp.MustCompile(`"request":"[^"]*"`), `"request":""`},
}

// alike makes the objects of a set comparable to another's.
func (all objects) alike(t *testing.T, who string) objects {
	t.Helper()
	same := objects{}
	scrub := func(text string) string {
		text = strings.ReplaceAll(text, who, "WHO")
		for _, d := range differing {
			text = d.pattern.ReplaceAllString(text, d.with)
		}
		return text
	}
	for key, o := range all {
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		clean := &unstructured.Unstructured{}
		if err := clean.UnmarshalJSON([]byte(scrub(string(text)))); err != nil {
			t.Fatal(err)
		}
		same[scrub(key)] = clean
	}
	return same
}

// differences lists what is not the same, field by field.
func differences(a, b objects) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(union(a, b))) {
		switch {
		case a[key] == nil:
			out = append(out, key+": only the second has it")
		case b[key] == nil:
			out = append(out, key+": only the first has it")
		default:
			fieldDifferences(a[key].Object, b[key].Object, "", func(path string, x, y any) {
				out = append(out, fmt.Sprintf("%s %s: %s, %s", key, path, short(x), short(y)))
			})
		}
	}
	return out
}

func union(a, b objects) objects {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}

func fieldDifferences(a, b any, path string, found func(path string, a, b any)) {
	if x, ok := a.(map[string]any); ok {
		if y, ok := b.(map[string]any); ok {
			keys := maps.Clone(x)
			maps.Copy(keys, y)
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				fieldDifferences(x[k], y[k], path+"."+k, found)
			}
			return
		}
	}
	if x, ok := a.([]any); ok {
		if y, ok := b.([]any); ok && len(x) == len(y) {
			for i := range x {
				fieldDifferences(x[i], y[i], fmt.Sprintf("%s[%d]", path, i), found)
			}
			return
		}
	}
	if !reflect.DeepEqual(a, b) {
		found(path, a, b)
	}
}

func short(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	if len(text) > 3000 {
		text = append(text[:3000], "..."...)
	}
	return string(bytes.TrimSpace(text))
}

// same fails the test for every difference.
func same(t *testing.T, what string, a, b objects) {
	t.Helper()
	for _, d := range differences(a.withoutMissing(), b.withoutMissing()) {
		t.Errorf("%s: %s", what, d)
	}
}

// settled waits until nothing changes any more: servers write when they start.
func (a *api) settled() objects {
	a.t.Helper()
	before := a.readAll()
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			a.t.Fatal("the server does not stop writing")
		case <-tick.C:
		}
		after := a.readAll()
		if len(differences(before.lasting(), after.lasting())) == 0 {
			return after
		}
		before = after
	}
}

// lasting leaves out what servers renew all the time, and where they say who they
// are.
func (all objects) lasting() objects {
	out := objects{}
	for key, o := range all {
		if !strings.HasPrefix(key, "coordination.k8s.io/v1/leases kube-system/") && !strings.HasSuffix(key, " default/kubernetes") {
			out[key] = o
		}
	}
	return out
}

// withoutMissing leaves out what our API server does not do yet, each of which is
// a debt: the status of FlowSchemas, notes about the use of old tokens, and
// managedFields of what the server itself writes.
func (all objects) withoutMissing() objects {
	out := objects{}
	for key, o := range all {
		if o.GetName() == "kube-apiserver-legacy-service-account-token-tracking" {
			continue
		}
		o = o.DeepCopy()
		if o.GetKind() == "FlowSchema" {
			delete(o.Object, "status")
			o.SetResourceVersion("")
		}
		owners, _, _ := unstructured.NestedSlice(o.Object, "metadata", "managedFields")
		owners = slices.DeleteFunc(owners, func(e any) bool {
			manager, _ := e.(map[string]any)["manager"].(string)
			return manager == "kube-apiserver" || strings.HasPrefix(manager, "api-priority-and-fairness")
		})
		unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
		// Upstream's can't work out who owns the fields of a request with a user's
		// extra attributes.
		if len(owners) > 0 && o.GetKind() != "CertificateSigningRequest" {
			o.Object["metadata"].(map[string]any)["managedFields"] = owners
		}
		out[key] = o
	}
	return out
}
