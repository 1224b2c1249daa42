package admission

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"orrery.dev/server/registry"
)

// made is a plugin with a configuration.
func made(t *testing.T, make func([]byte) (Plugin, error), config string) Plugin {
	t.Helper()
	p, err := make([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// annotated is a namespace ns.
func annotated(annotations map[string]string) *fakeStore {
	return newFakeStore().with(core("namespaces"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Annotations: annotations}})
}

func toleration(key, value string) corev1.Toleration {
	t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpEqual, Value: value, Effect: corev1.TaintEffectNoSchedule}
	if value == "" {
		t.Operator = corev1.TolerationOpExists
	}
	return t
}

func TestOptionalPlugins(t *testing.T) {
	image := func(image string) *corev1.Pod {
		return newPod("p", func(p *corev1.Pod) { p.Spec.Containers[0].Image = image })
	}
	anti := func(key string) *corev1.Pod {
		return newPod("p", func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: key}}}}
		})
	}
	device := func(names ...string) *corev1.Pod {
		return newPod("p", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{}
			for _, name := range names {
				p.Spec.Containers[0].Resources.Requests[corev1.ResourceName(name)] = resource.MustParse("1")
			}
		})
	}
	service := func(ips ...string) *corev1.Service {
		return &corev1.Service{ObjectMeta: named("ns", "s"), Spec: corev1.ServiceSpec{ExternalIPs: ips}}
	}
	selector := func(text string) *corev1.Pod {
		return newPod("p", func(p *corev1.Pod) {
			for key, value := range parseLabels(text) {
				p.Spec.NodeSelector = map[string]string{key: value}
			}
		})
	}
	tolerant := func(all ...corev1.Toleration) *corev1.Pod {
		return newPod("p", func(p *corev1.Pod) { p.Spec.Tolerations = all })
	}
	nodes := func(store Reader) func([]byte) (Plugin, error) {
		return func(raw []byte) (Plugin, error) { return podNodeSelector(store, raw) }
	}
	tolerations := func(store Reader) func([]byte) (Plugin, error) {
		return func(raw []byte) (Plugin, error) { return podTolerations(store, raw) }
	}
	const (
		selectors = "podNodeSelectorPluginConfig:\n  clusterDefaultNodeSelector: zone=a\n  ns: zone=a,env=test\n"
		tolerated = "apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1\nkind: Configuration\n" +
			"default: [{key: gpu, operator: Exists, effect: NoSchedule}]\nwhitelist: [{key: gpu, operator: Exists}, {key: node.kubernetes.io/memory-pressure, operator: Exists}]\n"
		ownSelector = "scheduler.alpha.kubernetes.io/node-selector"
	)
	emptied := newFakeStore()
	for _, c := range []struct {
		name   string
		plugin Plugin
		r      *Request
		want   string
		after  func(*Request) string // empty: as it should be
	}{
		{"pull", alwaysPullImages(), request(Create, "pods", image("a"), nil), "", func(r *Request) string {
			return wantText(r.Object.(*corev1.Pod).Spec.Containers[0].ImagePullPolicy, "Always")
		}},
		{"pull: a known image", alwaysPullImages(), request(Update, "pods", image("a"), image("a")), "", func(r *Request) string {
			return wantText(r.Object.(*corev1.Pod).Spec.Containers[0].ImagePullPolicy, "")
		}},
		{"pull: a new image", alwaysPullImages(), request(Update, "pods", image("b"), image("a")), "", func(r *Request) string {
			return wantText(r.Object.(*corev1.Pod).Spec.Containers[0].ImagePullPolicy, "Always")
		}},
		{"pull: undone", Plugin{Validate: alwaysPullImages().Validate}, request(Create, "pods", image("a"), nil), `pods "p" is forbidden: spec.containers[0].imagePullPolicy: Unsupported value: "": supported values: "Always"`, nil},
		{"anti-affinity: a node", limitAntiAffinity(), request(Create, "pods", anti("kubernetes.io/hostname"), nil), "", nil},
		{"anti-affinity: a zone", limitAntiAffinity(), request(Create, "pods", anti("zone"), nil), `pods "p" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key kubernetes.io/hostname is allowed`, nil},
		{"devices", extendedResourceToleration(), request(Create, "pods", device("x.com/b", "x.com/a", "cpu", "hugepages-1Gi", "x.kubernetes.io/c"), nil), "", func(r *Request) string {
			return wantText(r.Object.(*corev1.Pod).Spec.Tolerations, fmt.Sprint([]corev1.Toleration{toleration("x.com/a", ""), toleration("x.com/b", "")}))
		}},
		{"external IP", denyExternalIPs(), request(Create, "services", service("192.0.2.1"), nil), `services "s" is forbidden: Use of external IPs is denied by admission control`, nil},
		{"external IP: kept", denyExternalIPs(), request(Update, "services", service("192.0.2.1"), service("192.0.2.1", "192.0.2.2")), "", nil},
		{"external IP: another", denyExternalIPs(), request(Update, "services", service("192.0.2.3"), service("192.0.2.1")), `services "s" is forbidden: Use of external IPs is denied by admission control`, nil},
		{"namespace is made", namespaceAutoProvision(emptied, emptied), request(Create, "pods", newPod("p"), nil), "", func(*Request) string {
			ns, err := get[*corev1.Namespace](context.Background(), emptied, core("namespaces"), "", "ns")
			return wantText(fmt.Sprint(err, " ", ns.Status.Phase, ns.Spec.Finalizers, ns.Labels), "<nil> Active[kubernetes] map[kubernetes.io/metadata.name:ns]")
		}},
		{"namespace is there", namespaceExists(annotated(nil)), request(Create, "pods", newPod("p"), nil), "", nil},
		{"namespace is missing", namespaceExists(newFakeStore()), request(Delete, "pods", nil, newPod("p")), `namespaces "ns" not found`, nil},
		{"deny", alwaysDeny(), request(Create, "pods", newPod("p"), nil), `pods "p" is forbidden: admission control is denying all modifications`, nil},

		{"selector of the cluster", made(t, nodes(annotated(nil)), selectors), request(Create, "pods", newPod("p"), nil), "", func(r *Request) string {
			return wantText(r.Object.(*corev1.Pod).Spec.NodeSelector, "map[zone:a]")
		}},
		{"selector of the namespace", made(t, nodes(annotated(map[string]string{ownSelector: "env=test"})), selectors), request(Create, "pods", newPod("p"), nil), "", func(r *Request) string {
			return wantText(r.Object.(*corev1.Pod).Spec.NodeSelector, "map[env:test]")
		}},
		{"selector: conflict", made(t, nodes(annotated(nil)), selectors), request(Create, "pods", selector("zone=b"), nil), `pods "p" is forbidden: pod node label selector conflicts with its namespace node label selector`, nil},
		{"selector: not allowed", made(t, nodes(annotated(nil)), selectors), request(Create, "pods", selector("disk=ssd"), nil), `pods "p" is forbidden: pod node label selector labels conflict with its namespace whitelist`, nil},
		{"selector: no configuration", made(t, nodes(annotated(nil)), ""), request(Create, "pods", selector("disk=ssd"), nil), "", nil},

		{"tolerations of the cluster", made(t, tolerations(annotated(nil)), tolerated), request(Create, "pods", newPod("p"), nil), "", func(r *Request) string {
			return wantText(r.Object.(*corev1.Pod).Spec.Tolerations, fmt.Sprint([]corev1.Toleration{toleration("gpu", "")}))
		}},
		{"tolerations of the namespace", made(t, tolerations(annotated(map[string]string{defaultTolerations: `[{"key":"x","operator":"Exists","effect":"NoSchedule"}]`, allowedTolerations: ""})), tolerated), request(Create, "pods", tolerant(toleration("x", "1")), nil), "", func(r *Request) string {
			return wantText(r.Object.(*corev1.Pod).Spec.Tolerations, fmt.Sprint([]corev1.Toleration{toleration("x", "")}))
		}},
		{"tolerations: memory", made(t, tolerations(annotated(nil)), tolerated), request(Update, "pods", cpuPod("1"), cpuPod("1")), "", func(r *Request) string {
			return wantText(r.Object.(*corev1.Pod).Spec.Tolerations, fmt.Sprint([]corev1.Toleration{toleration("node.kubernetes.io/memory-pressure", "")}))
		}},
		{"tolerations: cluster's list", made(t, tolerations(annotated(nil)), tolerated), request(Create, "pods", tolerant(toleration("y", "1")), nil), `pod tolerations (possibly merged with namespace default tolerations) conflict with its cluster whitelist`, nil},
		{"tolerations: namespace's list", made(t, tolerations(annotated(map[string]string{allowedTolerations: `[{"key":"x","operator":"Exists"}]`})), tolerated), request(Create, "pods", tolerant(toleration("x", "1")), nil), `pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantError(t, run(t, c.plugin, c.r), c.want)
			if c.after != nil {
				if problem := c.after(c.r); problem != "" {
					t.Error(problem)
				}
			}
		})
	}
}

func wantText(got any, want string) string {
	if text := fmt.Sprint(got); text != want {
		return "got " + text + ", want " + want
	}
	return ""
}

func parseLabels(text string) map[string]string {
	key, value, _ := strings.Cut(text, "=")
	return map[string]string{key: value}
}

func TestOwnerReferences(t *testing.T) {
	owned := func(kind string, block bool) *corev1.Pod {
		return newPod("p", func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "o", UID: "1", BlockOwnerDeletion: &block}}
		})
	}
	may := func(rights ...string) authorizer.UnconditionalAuthorizer {
		return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			asked := strings.Join([]string{a.GetVerb(), a.GetNamespace(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetName()}, " ")
			if slices.Contains(rights, asked) {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "no", nil
		})
	}
	const (
		noDelete = `pods "p" is forbidden: cannot set an ownerRef on a resource you can't delete: no, <nil>`
		noBlock  = `pods "p" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: no, <nil>`
	)
	for name, c := range map[string]struct {
		r      *Request
		rights []string
		want   string
	}{
		"on create":          {request(Create, "pods", owned("ReplicaSet", false), nil), nil, ""},
		"on update":          {request(Update, "pods", owned("ReplicaSet", false), newPod("p")), nil, noDelete},
		"taken away":         {request(Update, "pods", newPod("p"), owned("ReplicaSet", false)), nil, noDelete},
		"may delete":         {request(Update, "pods", owned("ReplicaSet", false), newPod("p")), []string{"delete ns  pods  p"}, ""},
		"unchanged":          {request(Update, "pods", owned("ReplicaSet", true), owned("ReplicaSet", true)), nil, ""},
		"status":             {request(Update, "pods", owned("ReplicaSet", true), newPod("p")).sub("status"), nil, ""},
		"blocks":             {request(Create, "pods", owned("ReplicaSet", true), nil), nil, noBlock},
		"blocks, may":        {request(Create, "pods", owned("ReplicaSet", true), nil), []string{"update ns apps replicasets finalizers o"}, ""},
		"blocks, may do all": {request(Create, "pods", owned("ReplicaSet", true), nil), []string{"update  * * finalizers *"}, ""},
		"begins to block":    {request(Update, "pods", owned("ReplicaSet", true), owned("ReplicaSet", false)), []string{"delete ns  pods  p"}, noBlock},
		"of nothing":         {request(Create, "pods", owned("Nothing", true), nil), nil, `pods "p" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion apps/v1 Kind Nothing: no matches for kind "Nothing" in version "apps/v1"`},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, run(t, ownerReferences(registry.NewBuiltinTable(), may(c.rights...)), c.r), c.want)
		})
	}
}

func TestEventRateLimit(t *testing.T) {
	event := func(namespace, object string) *Request {
		return request(Create, "events", &corev1.Event{ObjectMeta: named(namespace, "e"), InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: object}}, nil)
	}
	limit := func(kind string, more ...string) string {
		return "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\nlimits:\n- {type: " + kind + ", qps: 1, burst: 2}\n" + strings.Join(more, "")
	}
	const refused = "Too many requests: limit reached on type "
	for name, c := range map[string]struct {
		config string
		asked  []*Request
		want   []string
	}{
		"server":    {limit("Server"), []*Request{event("a", "x"), event("b", "y"), event("c", "z").by("bob")}, []string{"", "", refused + "Server for key "}},
		"namespace": {limit("Namespace"), []*Request{event("a", "x"), event("a", "y"), event("b", "y"), event("a", "y")}, []string{"", "", "", refused + "Namespace for key a"}},
		"user":      {limit("User"), []*Request{event("a", "x"), event("b", "y"), event("a", "y").by("bob"), event("a", "y")}, []string{"", "", "", refused + "User for key ann"}},
		"object":    {limit("SourceAndObject"), []*Request{event("a", "x"), event("a", "x"), event("a", "y"), event("a", "x")}, []string{"", "", "", refused + "SourceAndObject for key Podx"}},
		"several":   {limit("Server", "- {type: User, qps: 1, burst: 2}\n"), []*Request{event("a", "x"), event("a", "x"), event("a", "y")}, []string{"", "", "Too many requests: [limit reached on type Server for key , limit reached on type User for key ann]"}},
		"forgotten": {limit("Namespace", "  cacheSize: 1\n"), []*Request{event("a", "x")}, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := strings.Replace(c.config, "burst: 2}\n  cacheSize: 1", "burst: 2, cacheSize: 1}", 1)
				p := made(t, eventRateLimit, config)
				for i, r := range c.asked {
					err := run(t, p, r)
					wantError(t, err, c.want[i])
					if err != nil && !apierrors.IsTooManyRequests(err) {
						t.Errorf("%#v", err)
					}
				}
				time.Sleep(time.Second)
				wantError(t, run(t, p, c.asked[0]), "")
			})
		})
	}
	dry := event("a", "x")
	dry.DryRun = true
	p := made(t, eventRateLimit, limit("Server"))
	for range 5 {
		wantError(t, run(t, p, dry), "")
	}
}

// TestBadConfigurations: what is wrong with a configuration is said at the start.
func TestBadConfigurations(t *testing.T) {
	const event = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n"
	for name, c := range map[string]struct{ plugin, config, want string }{
		"no limits":         {"EventRateLimit", event, "limits: Invalid value: null: must not be empty"},
		"a limit":           {"EventRateLimit", event + "limits: [{type: Cluster, burst: -1, cacheSize: -1}]", `[limits[0].type: Unsupported value: "Cluster": supported values: "Namespace", "Server", "SourceAndObject", "User", limits[0].burst: Invalid value: -1: must be positive, limits[0].qps: Invalid value: 0: must be positive, limits[0].cacheSize: Invalid value: -1: must not be negative]`},
		"another kind":      {"EventRateLimit", "apiVersion: v1\nkind: Pod\n", `no kind "Pod" is known in version "v1"; write a Configuration of eventratelimit.admission.k8s.io/v1alpha1`},
		"an unknown field":  {"EventRateLimit", event + "limit: []\n", `error unmarshaling JSON: while decoding JSON: json: unknown field "limit"`},
		"a level":           {"PodSecurity", "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\ndefaults: {enforce: loose}\n", "enforce: must be one of privileged, baseline, restricted"},
		"a resource":        {"ResourceQuota", "apiVersion: apiserver.config.k8s.io/v1\nkind: ResourceQuotaConfiguration\nlimitedResources: [{matchContains: [x]}]\n", "limitedResources[0].resource: Required value"},
		"a relative path":   {"ValidatingAdmissionWebhook", "apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\nkubeConfigFile: a\n", `kubeConfigFile: Invalid value: "a": must be an absolute file path`},
		"no service":        {"ImagePolicyWebhook", "", "no config specified"},
		"a time":            {"ImagePolicyWebhook", "imagePolicy: {kubeConfigFile: /x, allowTTL: 9999}", "valid value is between 1s and 30m0s, got 2h46m39s"},
		"a bad toleration":  {"PodTolerationRestriction", "apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1\nkind: Configuration\ndefault: [{key: a b}]\n", "podtolerationrestriction.default[0].key: Invalid value"},
		"a kubeconfig gone": {"MutatingAdmissionWebhook", "apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\nkubeConfigFile: /nowhere\n", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Choice: Choice{Enable: []string{c.plugin}, Configurations: map[string][]byte{}}}
			if c.config != "" {
				config.Choice.Configurations[c.plugin] = []byte(c.config)
			}
			_, err := All(config)
			if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("couldn't init admission plugin %q: ", c.plugin)) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestChoice(t *testing.T) {
	for name, c := range map[string]struct {
		choice Choice
		want   string // an error, or what is more and less than by default
	}{
		"nothing":           {Choice{}, ""},
		"enabled":           {Choice{Enable: []string{"AlwaysPullImages", "Priority"}}, "+AlwaysPullImages"},
		"disabled":          {Choice{Disable: []string{"Priority", "EventRateLimit"}}, "-Priority"},
		"only":              {Choice{Only: []string{"Priority", "NamespaceLifecycle"}}, "only NamespaceLifecycle Priority ServiceAddresses"},
		"unknown":           {Choice{Enable: []string{"Nothing"}, Disable: []string{"GrantCheck"}}, "enable-admission-plugins plugin \"Nothing\" is unknown\ndisable-admission-plugins plugin \"GrantCheck\" is unknown"},
		"both":              {Choice{Enable: []string{"Priority", "LimitRanger"}, Disable: []string{"Priority", "LimitRanger"}}, "[LimitRanger Priority] in enable-admission-plugins and disable-admission-plugins overlapped"},
		"in the old manner": {Choice{Only: []string{"Priority"}, Disable: []string{"Priority"}}, "admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive"},
	} {
		t.Run(name, func(t *testing.T) {
			chain, err := All(Config{Choice: c.choice})
			if err != nil {
				wantError(t, err, c.want)
				return
			}
			usual, err := All(Config{})
			if err != nil {
				t.Fatal(err)
			}
			got := "only " + strings.Join(names(chain), " ")
			if !strings.HasPrefix(c.want, "only") {
				got = difference(names(chain), names(usual))
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func names(chain Chain) (all []string) {
	for _, p := range chain {
		all = append(all, p.Name)
	}
	return all
}

func difference(a, b []string) string {
	var all []string
	for _, name := range a {
		if !slices.Contains(b, name) {
			all = append(all, "+"+name)
		}
	}
	for _, name := range b {
		if !slices.Contains(a, name) {
			all = append(all, "-"+name)
		}
	}
	return strings.Join(all, " ")
}

func TestReadConfigurations(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("events.yaml", "kind: Configuration\n")
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for name, c := range map[string]struct{ text, want string }{
		"inline and beside": {head + "- {name: PodSecurity, configuration: {kind: X}}\n- {name: EventRateLimit, path: events.yaml}\n", `map[EventRateLimit:kind: Configuration` + "\n" + ` PodSecurity:{"kind":"X"}]`},
		"the first counts":  {head + "- {name: PodSecurity, configuration: {a: 1}}\n- {name: PodSecurity, configuration: {a: 2}}\n", `map[PodSecurity:{"a":1}]`},
		"the older version": {strings.Replace(head, "apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1", 1) + "- {name: A, configuration: {a: 1}}\n", `map[A:{"a":1}]`},
		"bare":              {"podNodeSelectorPluginConfig: {}\n", "map[PodNodeSelector:podNodeSelectorPluginConfig: {}\n]"},
		"not there":         {head + "- {name: A, path: gone}\n", "no such file or directory"},
		"unknown field":     {head + "- {nam: A}\n", `unknown field "plugins[0].nam"`},
		"another kind":      {"apiVersion: v1\nkind: Pod\n", `no kind "Pod" is registered for version "v1"`},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := ReadConfigurations(write("config.yaml", c.text))
			shown := map[string]string{}
			for name, raw := range all {
				shown[name] = string(raw)
			}
			if got := fmt.Sprint(shown); err != nil && !strings.Contains(err.Error(), c.want) || err == nil && got != c.want {
				t.Errorf("got %s %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestLimitedResources(t *testing.T) {
	const config = "apiVersion: apiserver.config.k8s.io/v1\nkind: ResourceQuotaConfiguration\nlimitedResources:\n" +
		"- {resource: pods, matchContains: [cpu], matchScopes: [{scopeName: PriorityClass, operator: In, values: [high]}]}\n"
	high := func(p *corev1.Pod) *corev1.Pod { p.Spec.PriorityClassName = "high"; return p }
	scoped := newQuota("s", texts{"pods": "9"}, texts{"pods": "0"}, func(q *corev1.ResourceQuota) {
		q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"high"}}}}
	})
	cpu := newQuota("c", texts{"requests.cpu": "9", "cpu": "9", "limits.cpu": "9"}, texts{"requests.cpu": "0", "cpu": "0", "limits.cpu": "0"})
	for name, c := range map[string]struct {
		quotas []*corev1.ResourceQuota
		pod    *corev1.Pod
		want   string
	}{
		"nothing limited":  {nil, newPod("p"), ""},
		"not covered":      {nil, cpuPod("1"), `pods "p" is forbidden: insufficient quota to consume: cpu,limits.cpu,requests.cpu`},
		"covered":          {[]*corev1.ResourceQuota{cpu}, cpuPod("1"), ""},
		"another scope":    {[]*corev1.ResourceQuota{scoped}, cpuPod("1"), `pods "p" is forbidden: insufficient quota to consume: cpu,limits.cpu,requests.cpu`},
		"class":            {nil, high(newPod("p")), "insufficient quota to match these scopes: [{PriorityClass In [high]}]"},
		"unspecified too":  {[]*corev1.ResourceQuota{newQuota("m", texts{"limits.memory": "1"}, texts{"limits.memory": "0"})}, cpuPod("1"), `pods "p" is forbidden: failed quota: m: must specify limits.memory for: c`},
		"exceeded too":     {[]*corev1.ResourceQuota{newQuota("n", texts{"pods": "0"}, texts{"pods": "0"})}, cpuPod("1"), `pods "p" is forbidden: insufficient quota to consume: cpu,limits.cpu,requests.cpu`},
		"class is covered": {[]*corev1.ResourceQuota{scoped}, high(newPod("p")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			store := newFakeStore()
			for _, q := range c.quotas {
				store.with(quotaResource(), q.DeepCopy())
			}
			p := made(t, func(raw []byte) (Plugin, error) { return resourceQuota(store, store, raw) }, config)
			wantError(t, run(t, p, request(Create, "pods", c.pod, nil)), c.want)
		})
	}
}

// kubeconfig points to a server, with one user.
func kubeconfig(t *testing.T, server *httptest.Server, userName string) string {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q, certificate-authority: %q}}]\nusers: [{name: %q, user: {token: secret}}]\ncontexts: [{name: c, context: {cluster: a, user: %q}}]\ncurrent-context: c\n", server.URL, ca, userName, userName)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestImagePolicy(t *testing.T) {
	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		var review imagepolicyv1alpha1.ImageReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Kind != "ImageReview" || review.Spec.Namespace != "ns" || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("asked %+v %v", review, err)
		}
		switch image := review.Spec.Containers[0].Image; image {
		case "broken":
			w.WriteHeader(http.StatusNotFound)
			return
		default:
			review.Status = imagepolicyv1alpha1.ImageReviewStatus{Allowed: image == "good", AuditAnnotations: map[string]string{"seen": image}}
			if image == "bad" {
				review.Status.Reason = "it is bad"
			}
		}
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer server.Close()
	file := kubeconfig(t, server, "me")
	for _, open := range []bool{false, true} {
		p := made(t, imagePolicy, fmt.Sprintf("imagePolicy: {kubeConfigFile: %q, retryBackoff: 1, defaultAllow: %t}", file, open))
		for image, want := range map[string]string{
			"good":   "",
			"bad":    `pods "p" is forbidden: image policy webhook backend denied one or more images: it is bad`,
			"other":  `pods "p" is forbidden: one or more images rejected by webhook backend`,
			"broken": map[bool]string{false: `pods "p" is forbidden: the server could not find the requested resource`, true: ""}[open],
		} {
			notes := map[string]string{}
			r := request(Create, "pods", newPod("p", func(p *corev1.Pod) {
				p.Spec.Containers[0].Image = image
				p.Annotations = map[string]string{"x.image-policy.k8s.io/y": "1", "other": "2"}
			}), nil)
			r.Annotate = func(key, value string) { notes[key] = value }
			wantError(t, run(t, p, r), want)
			wantNotes := map[string]string{"imagepolicywebhook.image-policy.k8s.io/seen": image}
			if image == "broken" {
				wantNotes = map[string]string{}
				if open {
					wantNotes["imagepolicywebhook.image-policy.k8s.io/failed-open"] = "true"
				}
			}
			if fmt.Sprint(notes) != fmt.Sprint(wantNotes) {
				t.Errorf("%s: annotations %v, want %v", image, notes, wantNotes)
			}
			before := asked
			if run(t, p, r); image != "broken" && asked != before {
				t.Errorf("%s: asked again", image)
			}
		}
	}
}

// TestWebhookNotes: what webhooks did is told to the audit log.
func TestWebhookNotes(t *testing.T) {
	server := newHookServer(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		patch := `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`
		if strings.Contains(string(r.Object.Raw), `"labels"`) {
			patch = ""
		}
		answer := &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch)}
		if patch != "" {
			answer.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
		}
		return answer
	})
	hook := func(name string, client admissionregistrationv1.WebhookClientConfig) admissionregistrationv1.MutatingWebhook {
		return admissionregistrationv1.MutatingWebhook{
			Name: name, ClientConfig: client, Rules: anyPod(), AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy: ptr.To(admissionregistrationv1.Ignore), ReinvocationPolicy: ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy),
		}
	}
	gone := admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")}
	elsewhere := hook("not-asked", server.client())
	elsewhere.Rules[0].Resources = []string{"configmaps"}
	store := newFakeStore().with(schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "mutatingwebhookconfigurations"},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: named("", "c"), Webhooks: []admissionregistrationv1.MutatingWebhook{elsewhere, hook("gone", gone), hook("patches", server.client())}})
	store.with(schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "validatingwebhookconfigurations"},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named("", "v"), Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "gone", ClientConfig: gone, Rules: anyPod(), AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), FailurePolicy: ptr.To(admissionregistrationv1.Ignore),
		}}})
	hooks := newWebhooks(store, nil, nil)
	notes := map[string]string{}
	r := podRequest(newPod("p"))
	r.Annotate = func(key, value string) { notes[key] = value }
	chain := Chain{hooks.mutating(), hooks.validating()}
	wantError(t, chain.Mutate(t.Context(), r), "")
	wantError(t, chain.Validate(t.Context(), r), "")
	want := map[string]string{
		"failed-open.mutation.webhook.admission.k8s.io/round_0_index_1":   "gone",
		"failed-open.mutation.webhook.admission.k8s.io/round_1_index_1":   "gone",
		"mutation.webhook.admission.k8s.io/round_0_index_1":               `{"configuration":"c","webhook":"gone","mutated":false}`,
		"mutation.webhook.admission.k8s.io/round_0_index_2":               `{"configuration":"c","webhook":"patches","mutated":true}`,
		"mutation.webhook.admission.k8s.io/round_1_index_1":               `{"configuration":"c","webhook":"gone","mutated":false}`,
		"patch.webhook.admission.k8s.io/round_0_index_2":                  `{"configuration":"c","webhook":"patches","patch":[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}],"patchType":"JSONPatch"}`,
		"failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "gone",
	}
	for key, value := range want {
		if notes[key] != value {
			t.Errorf("%s: %q, want %q", key, notes[key], value)
		}
	}
	if len(notes) != len(want) {
		t.Errorf("annotations %v", notes)
	}
}

// TestWebhookCredentials: a webhook is called as the user that the file names for
// its server.
func TestWebhookCredentials(t *testing.T) {
	got := make(chan string, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Authorization") }))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config := admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: ca}
	user, err := readCredentials([]byte(fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\nkubeConfigFile: %q\n", kubeconfig(t, server, server.Listener.Addr().String()))))
	if err != nil {
		t.Fatal(err)
	}
	caller := NewCaller(newFakeStore())
	caller.credentials = user
	_ = caller.Post(t.Context(), config, 0, struct{}{}, &struct{}{}) // it answers nothing
	if token := <-got; token != "Bearer secret" {
		t.Errorf("called with %q", token)
	}
	for name, servers := range map[string]map[string]bool{
		"a.ns.svc":     {"a.ns.svc:443": true, "b.ns.svc:443": false, "a.ns.svc:8443": false},
		"a.ns.svc:443": {"a.ns.svc:443": true},
		"*.ns.svc":     {"a.ns.svc:443": true, "a.other.svc:443": false},
		"*.svc":        {"a.ns.svc:443": true, "example.com:443": false},
		"*":            {"example.com:8443": true},
	} {
		user.file.AuthInfos = map[string]*clientcmdapi.AuthInfo{name: {}}
		user.file.CurrentContext = ""
		for server, want := range servers {
			if got := user.of(server) != nil; got != want {
				t.Errorf("%s for %s: %t", name, server, got)
			}
		}
	}
}
