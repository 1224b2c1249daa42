package admission

import (
	"context"
	"fmt"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/metrics/legacyregistry"
	podsecurity "k8s.io/pod-security-admission/admission"
	podsecurityload "k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"
)

// podSecurity holds pods to the level that their namespace's labels ask for:
// privileged (the default), baseline or restricted.
// raw is a configuration with other defaults, and with exemptions.
func podSecurity(reader Reader, raw []byte) (Plugin, error) {
	config, err := podsecurityload.LoadFromData(raw)
	if err != nil {
		return Plugin{}, err
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return Plugin{}, fmt.Errorf("pod security checks: %w", err)
	}
	judge := &podsecurity.Admission{
		Configuration:    config,
		Evaluator:        evaluator,
		Metrics:          podSecurityMetrics(),
		PodSpecExtractor: podsecurity.DefaultPodSpecExtractor{},
		NamespaceGetter:  securityReader{reader},
		PodLister:        securityReader{reader},
	}
	if err := judge.CompleteConfiguration(); err != nil {
		return Plugin{}, fmt.Errorf("pod security: %w", err)
	}
	if err := judge.ValidateConfiguration(); err != nil {
		return Plugin{}, fmt.Errorf("pod security: %w", err)
	}
	extractor := podsecurity.DefaultPodSpecExtractor{}
	return Plugin{
		Name: "PodSecurity",
		On: func(r *Request) bool {
			return (r.Operation == Create || r.Operation == Update) &&
				(r.Resource.Group == "" && r.Resource.Resource == "namespaces" || extractor.HasPodSpec(r.Resource.GroupResource()))
		},
		Validate: func(ctx context.Context, r *Request) error { return judgePod(ctx, judge, r) },
	}, nil
}

func judgePod(ctx context.Context, judge *podsecurity.Admission, r *Request) error {
	name := ""
	if m := r.Meta(); m != nil {
		name = m.GetName()
	}
	if r.User == nil {
		return nil // the server itself
	}
	answer := judge.Validate(ctx, &api.AttributesRecord{
		Name: name, Namespace: r.Namespace, Kind: r.Kind, Resource: r.Resource, Subresource: r.Subresource,
		Operation: admissionv1.Operation(r.Operation), Object: r.Object, OldObject: r.Old, Username: r.User.GetName(),
	})
	if answer == nil {
		return nil
	}
	if r.Warn != nil {
		for _, text := range answer.Warnings {
			r.Warn(text)
		}
	}
	for key, value := range answer.AuditAnnotations {
		r.annotate("pod-security.kubernetes.io/"+key, value)
	}
	if answer.Allowed {
		return nil
	}
	if answer.Result == nil {
		return r.forbid("refused by pod security")
	}
	return &apierrors.StatusError{ErrStatus: *answer.Result}
}

type securityReader struct{ reader Reader }

func (s securityReader) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return get[*corev1.Namespace](ctx, s.reader, core("namespaces"), "", name)
}

func (s securityReader) ListPods(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
	return list[*corev1.Pod](ctx, s.reader, core("pods"), namespace)
}

// podSecurityMetrics are the library's counters, which one process has once.
var podSecurityMetrics = sync.OnceValue(func() metrics.Recorder {
	recorder := metrics.NewPrometheusRecorder(api.GetAPIVersion())
	recorder.MustRegister(legacyregistry.MustRegister)
	return recorder
})
