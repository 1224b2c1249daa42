package admission

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/server/registry"
)

// hook is a webhook of either kind.
type hook struct {
	config, name string
	client       admissionregistrationv1.WebhookClientConfig
	rules        []admissionregistrationv1.RuleWithOperations
	failOpen     bool // failurePolicy Ignore
	exact        bool // matchPolicy Exact
	namespaces   *metav1.LabelSelector
	objects      *metav1.LabelSelector
	noDryRun     bool // may have side effects in a dry run
	timeout      time.Duration
	versions     []string // of AdmissionReview
	conditions   []admissionregistrationv1.MatchCondition
	again        bool // reinvocationPolicy IfNeeded
}

// webhooks calls the webhooks that are configured in the cluster.
type webhooks struct {
	reader  Reader
	kinds   *registry.Table
	matcher *matcher
	caller  *Caller
}

func newWebhooks(reader Reader, kinds *registry.Table, authz authorizer.UnconditionalAuthorizer) *webhooks {
	return &webhooks{reader, kinds, newMatcher(reader, authz), NewCaller(reader)}
}

// exempt: no webhook may lock an administrator out of mending the webhooks.
func exempt(r *Request) bool { return r.Resource.Group == admissionregistrationv1.GroupName }

// configured makes a plugin that calls its webhooks with the credentials of its
// configuration.
func (w *webhooks) configured(make func(*webhooks) Plugin) func([]byte) (Plugin, error) {
	return func(raw []byte) (Plugin, error) {
		user, err := readCredentials(raw)
		if err != nil {
			return Plugin{}, err
		}
		own := &webhooks{w.reader, w.kinds, w.matcher, NewCaller(w.reader)}
		own.caller.credentials = user
		return make(own), nil
	}
}

// mutating calls mutating webhooks one after another.
func (w *webhooks) mutating() Plugin {
	return Plugin{
		On: func(r *Request) bool { return !exempt(r) },
		Mutate: func(ctx context.Context, r *Request) error {
			hooks, err := w.mutatingHooks(ctx)
			if err != nil {
				return err
			}
			for i, h := range hooks {
				if err := w.mutate(ctx, r, h, i); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (w *webhooks) mutate(ctx context.Context, r *Request, h hook, index int) error {
	step := "webhook " + h.config + " " + h.name
	if !r.due(step) {
		return nil
	}
	in, ok, err := w.invocation(ctx, r, h)
	if err != nil || !ok {
		return err
	}
	c := called{h, r, "admit", fmt.Sprintf("round_%d_index_%d", r.round(), index), time.Now()}
	answer, err := w.call(ctx, r, in)
	changed, patch := false, []byte(nil)
	if err == nil && answer.Allowed && len(answer.Patch) > 0 {
		if changed, err = w.patch(r, in, answer.Patch); err == nil {
			patch = answer.Patch
		}
		r.changed = r.changed || changed
	}
	c.mutated(changed, patch)
	if err := c.outcome(ctx, answer, err); err != nil {
		return err
	}
	r.ran(step, h.again)
	return nil
}

// validating calls validating webhooks, all at once.
func (w *webhooks) validating() Plugin {
	return Plugin{
		On: func(r *Request) bool { return !exempt(r) },
		Validate: func(ctx context.Context, r *Request) error {
			hooks, err := w.validatingHooks(ctx)
			if err != nil {
				return err
			}
			var calls []invocation
			for _, h := range hooks {
				in, ok, err := w.invocation(ctx, r, h)
				if err != nil {
					return err
				}
				if ok {
					calls = append(calls, in)
				}
			}
			return w.validate(ctx, r, calls)
		},
	}
}

func (w *webhooks) validate(ctx context.Context, r *Request, calls []invocation) error {
	// Calls run side by side; what they say is passed on under a lock.
	shared := *r
	var mu sync.Mutex
	if r.Warn != nil {
		shared.Warn = func(text string) { mu.Lock(); defer mu.Unlock(); r.Warn(text) }
	}
	if r.Annotate != nil {
		shared.Annotate = func(key, value string) { mu.Lock(); defer mu.Unlock(); r.Annotate(key, value) }
	}
	errs := make([]error, len(calls))
	var running sync.WaitGroup
	for i, in := range calls {
		running.Go(func() {
			c := called{in.hook, &shared, "validating", fmt.Sprintf("round_0_index_%d", i), time.Now()}
			answer, err := w.call(ctx, &shared, in)
			errs[i] = c.outcome(ctx, answer, err)
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// denied is a webhook's refusal, with its own status as far as that makes sense.
func (h hook) denied(result *metav1.Status) error {
	status := metav1.Status{}
	if result != nil {
		status = *result
	}
	if status.Code < http.StatusBadRequest {
		status.Code = http.StatusBadRequest
	}
	if status.Status == "" || status.Status == metav1.StatusSuccess {
		status.Status = metav1.StatusFailure
	}
	by := fmt.Sprintf("admission webhook %q denied the request", h.name)
	switch {
	case status.Message != "":
		status.Message = by + ": " + status.Message
	case status.Reason != "":
		status.Message = by + ": " + string(status.Reason)
	default:
		status.Message = by + " without explanation"
	}
	return &apierrors.StatusError{ErrStatus: status}
}

func (w *webhooks) mutatingHooks(ctx context.Context) ([]hook, error) {
	all, err := list[*admissionregistrationv1.MutatingWebhookConfiguration](ctx, w.reader, schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "mutatingwebhookconfigurations"}, "")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *admissionregistrationv1.MutatingWebhookConfiguration) int {
		return strings.Compare(a.Name, b.Name)
	})
	var hooks []hook
	for _, config := range all {
		for i := range config.Webhooks {
			m := &config.Webhooks[i]
			// The two kinds have the same fields but for this one.
			h := newHook(config.Name, &admissionregistrationv1.ValidatingWebhook{
				Name: m.Name, ClientConfig: m.ClientConfig, Rules: m.Rules, FailurePolicy: m.FailurePolicy, MatchPolicy: m.MatchPolicy,
				NamespaceSelector: m.NamespaceSelector, ObjectSelector: m.ObjectSelector, SideEffects: m.SideEffects,
				TimeoutSeconds: m.TimeoutSeconds, AdmissionReviewVersions: m.AdmissionReviewVersions, MatchConditions: m.MatchConditions,
			})
			h.again = m.ReinvocationPolicy != nil && *m.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy
			hooks = append(hooks, h)
		}
	}
	return hooks, nil
}

func (w *webhooks) validatingHooks(ctx context.Context) ([]hook, error) {
	all, err := list[*admissionregistrationv1.ValidatingWebhookConfiguration](ctx, w.reader, schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "validatingwebhookconfigurations"}, "")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *admissionregistrationv1.ValidatingWebhookConfiguration) int {
		return strings.Compare(a.Name, b.Name)
	})
	var hooks []hook
	for _, config := range all {
		for i := range config.Webhooks {
			hooks = append(hooks, newHook(config.Name, &config.Webhooks[i]))
		}
	}
	return hooks, nil
}

func newHook(config string, v *admissionregistrationv1.ValidatingWebhook) hook {
	h := hook{
		config: config, name: v.Name, client: v.ClientConfig, rules: v.Rules, namespaces: v.NamespaceSelector, objects: v.ObjectSelector,
		timeout: 10 * time.Second, versions: v.AdmissionReviewVersions, conditions: v.MatchConditions,
	}
	h.failOpen = v.FailurePolicy != nil && *v.FailurePolicy == admissionregistrationv1.Ignore
	h.exact = v.MatchPolicy != nil && *v.MatchPolicy == admissionregistrationv1.Exact
	if v.TimeoutSeconds != nil {
		h.timeout = time.Duration(*v.TimeoutSeconds) * time.Second
	}
	h.noDryRun = v.SideEffects == nil || *v.SideEffects != admissionregistrationv1.SideEffectClassNone && *v.SideEffects != admissionregistrationv1.SideEffectClassNoneOnDryRun
	return h
}

// patch applies a webhook's JSON patch to the object that it was shown, and
// puts the result in the place of the request's.
func (w *webhooks) patch(r *Request, in invocation, patch []byte) (changed bool, err error) {
	if r.Object == nil {
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", in.name))
	}
	before, err := in.encode(r.Object)
	if err != nil {
		return false, err
	}
	after, err := applyPatch(before, patch)
	if err != nil {
		return false, err
	}
	if bytes.Equal(before, after) {
		return false, nil
	}
	obj, err := in.decode(after, r.Object)
	if err != nil {
		return false, err
	}
	return true, replace(r.Object, obj)
}

// replace puts a new state into the place of an object: the verb holds the pointer.
func replace(obj, with runtime.Object) error {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if v, ok := with.(*unstructured.Unstructured); ok {
			u.Object = v.Object
			return nil
		}
	}
	a, b := reflect.ValueOf(obj), reflect.ValueOf(with)
	if a.Type() != b.Type() || a.Kind() != reflect.Pointer {
		return fmt.Errorf("a webhook made a %T of a %T", with, obj)
	}
	a.Elem().Set(b.Elem())
	return nil
}
