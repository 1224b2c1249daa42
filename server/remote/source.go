package remote

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"orrery.dev/api"
	"orrery.dev/server/registry"
	"orrery.dev/server/stream"
	"orrery.dev/why"
)

const (
	// answerHolds is how long an answer of the authoriser is believed.
	answerHolds = 20 * time.Second
	// lookAgain is how soon an unknown kind is looked for anew.
	lookAgain = 5 * time.Second
	// manyAsk is how many namespaces are asked about at the same time.
	manyAsk = 8
)

// Source reads a cluster with the rights of a kubeconfig.
type Source struct {
	clients kubernetes.Interface
	find    discovery.DiscoveryInterface
	typed   *rest.RESTClient // speaks protobuf
	plain   *rest.RESTClient // speaks JSON, of any kind
	builtin *registry.Table
	home    string // the kubeconfig's namespace
	allowed remembered[authorizationv1.ResourceAttributes, bool]
	useful  remembered[string, bool] // namespaces where there is anything to list
	columns remembered[schema.GroupVersionResource, []api.RowColumn]

	mu     sync.Mutex // protects the fields below
	served map[schema.GroupResource][]resource
	looked time.Time
}

// resource is a kind in one of the versions in which it is served.
type resource struct {
	version, kind string
	namespaced    bool
}

var _ stream.Source = (*Source)(nil)

// NewSource makes a Source; home is the namespace to fall back on where the user
// may not list them.
func NewSource(cfg *rest.Config, home string) (*Source, error) {
	own := rest.CopyConfig(cfg)
	own.QPS, own.Burst = -1, -1
	own.APIPath, own.GroupVersion = "/", &schema.GroupVersion{}
	own.WarningHandler = rest.NoWarnings{} // of deprecated versions: nobody chose them
	typed, plain := rest.CopyConfig(own), dynamic.ConfigFor(own)
	typed.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	typed.ContentType = runtime.ContentTypeProtobuf
	typed.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	s := &Source{builtin: registry.NewBuiltinTable(), home: home}
	var err error
	if s.typed, err = rest.UnversionedRESTClientFor(typed); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if s.plain, err = rest.UnversionedRESTClientFor(plain); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if s.clients, err = kubernetes.NewForConfig(typed); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	s.find = s.clients.Discovery()
	return s, nil
}

// Kind finds a kind by discovery. Of the versions that are served it takes one that
// we can print.
func (s *Source) Kind(v api.View) (*stream.Kind, error) {
	gr := schema.GroupResource{Group: v.Group, Resource: v.Resource}
	versions, err := s.versions(gr)
	if err != nil {
		return nil, err
	}
	if v.Version != "" {
		versions = slices.DeleteFunc(slices.Clone(versions), func(r resource) bool { return r.version != v.Version })
	}
	if len(versions) == 0 {
		return nil, apierrors.NewNotFound(gr, v.Name)
	}
	chosen := versions[0]
	for _, r := range versions {
		if s.known(gr.WithVersion(r.version)) != nil {
			chosen = r
			break
		}
	}
	k := &stream.Kind{GroupVersionResource: gr.WithVersion(chosen.version), Namespaced: chosen.namespaced, Row: encoded, Whole: encoded}
	switch known := s.known(k.GroupVersionResource); {
	case v.Name != "": // an object has no columns
	case known != nil:
		k.Columns = known.FaceRows().Columns
	default:
		k.Columns, err = s.columnsOf(k, v.Namespaces)
	}
	return k, err
}

// known is the kind if rows of it can be made here, or nil.
func (s *Source) known(gvr schema.GroupVersionResource) *registry.Kind {
	k := s.builtin.Find(gvr)
	if k == nil || k.Row == nil {
		return nil
	}
	if _, _, err := scheme.Scheme.ObjectKinds(k.New()); err != nil {
		return nil
	}
	return k
}

// versions are those in which a kind is served, the preferred one first. What is
// not there is looked for again, but not all the time.
func (s *Source) versions(gr schema.GroupResource) ([]resource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.served[gr]) == 0 {
		if err := s.look(); err != nil {
			return nil, err
		}
	}
	return s.served[gr], nil
}

// kinds are all that are served, in the preferred version.
func (s *Source) kinds() ([]why.Kind, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.look(); err != nil {
		return nil, err
	}
	var all []why.Kind
	for gr, versions := range s.served {
		all = append(all, why.Kind{GroupVersionResource: gr.WithVersion(versions[0].version), Name: versions[0].kind, Namespaced: versions[0].namespaced})
	}
	return all, nil
}

// look discovers what is served, unless that was done just now. The caller holds mu.
func (s *Source) look() error {
	if time.Since(s.looked) < lookAgain {
		return nil
	}
	groups, lists, err := s.find.ServerGroupsAndResources()
	if len(lists) == 0 && err != nil { // otherwise of some groups only: an extension is away
		return err
	}
	s.served, s.looked = map[schema.GroupResource][]resource{}, time.Now()
	byVersion := map[string]*metav1.APIResourceList{}
	for _, list := range lists {
		byVersion[list.GroupVersion] = list
	}
	for _, g := range groups {
		for _, v := range append([]metav1.GroupVersionForDiscovery{g.PreferredVersion}, g.Versions...) {
			s.add(g.Name, v.Version, byVersion[v.GroupVersion])
		}
	}
	return nil
}

func (s *Source) add(group, version string, list *metav1.APIResourceList) {
	if list == nil {
		return
	}
	for _, r := range list.APIResources {
		gr := schema.GroupResource{Group: group, Resource: r.Name}
		had := slices.ContainsFunc(s.served[gr], func(o resource) bool { return o.version == version })
		if !had && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") {
			s.served[gr] = append(s.served[gr], resource{version, r.Kind, r.Namespaced})
		}
	}
}

// Namespaces are those in which there may be something to see: of all, if the user
// may list them, and else of the kubeconfig's own, the ones with anything to list.
func (s *Source) Namespaces(ctx context.Context) ([]string, error) {
	var names []string
	list, err := s.clients.CoreV1().Namespaces().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	switch {
	case apierrors.IsForbidden(err):
		names = []string{s.home}
	case err != nil:
		return nil, err
	default:
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
	}
	keep := make([]bool, len(names))
	slots := make(chan struct{}, manyAsk)
	var asking sync.WaitGroup
	for i, ns := range names {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			keep[i], _ = s.useful.get(ns, func() (bool, error) { return s.listsAnything(ctx, ns) })
		})
	}
	asking.Wait()
	var some []string
	for i, ns := range names {
		if keep[i] {
			some = append(some, ns)
		}
	}
	return some, ctx.Err()
}

// listsAnything reports whether a namespace has any kind that the user may list. An
// authoriser that can't tell its rules is believed to have some.
func (s *Source) listsAnything(ctx context.Context, namespace string) (bool, error) {
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	answer, err := s.clients.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return true, err
	}
	for _, rule := range answer.Status.ResourceRules {
		if len(rule.ResourceNames) == 0 && s.builtin.Within(rule.Resources) && (slices.Contains(rule.Verbs, "list") || slices.Contains(rule.Verbs, "*")) {
			return true, nil
		}
	}
	return false, nil
}

// Authorize asks the server what we may do; there is no other user here.
func (s *Source) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	what := authorizationv1.ResourceAttributes{
		Verb: a.GetVerb(), Group: a.GetAPIGroup(), Version: a.GetAPIVersion(), Resource: a.GetResource(),
		Subresource: a.GetSubresource(), Namespace: a.GetNamespace(), Name: a.GetName(),
	}
	allowed, err := s.allowed.get(what, func() (bool, error) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}}
		answer, err := s.clients.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return answer.Status.Allowed, nil
	})
	if allowed {
		return authorizer.DecisionAllow, "", err
	}
	return authorizer.DecisionNoOpinion, "", err
}

// remembered keeps answers for answerHolds.
type remembered[K comparable, V any] struct {
	mu    sync.Mutex // protects the field below
	known map[K]answer[V]
}

type answer[V any] struct {
	value V
	until time.Time
}

// get asks only for what it does not know. Errors are not kept.
func (r *remembered[K, V]) get(key K, ask func() (V, error)) (V, error) {
	r.mu.Lock()
	had, ok := r.known[key]
	r.mu.Unlock()
	now := time.Now()
	if ok && now.Before(had.until) {
		return had.value, nil
	}
	value, err := ask()
	if err != nil {
		return value, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) > 10_000 || r.known == nil {
		r.known = map[K]answer[V]{}
	}
	r.known[key] = answer[V]{value, now.Add(answerHolds)}
	return value, nil
}
