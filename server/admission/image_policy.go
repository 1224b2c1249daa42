package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/yaml"

	"orrery.dev/server/webhook"
)

// imagePolicy asks a service whether a pod's images may be used.
func imagePolicy(raw []byte) (Plugin, error) {
	if raw == nil {
		return Plugin{}, errors.New("no config specified")
	}
	var file struct {
		ImagePolicy struct {
			KubeConfigFile string
			AllowTTL       time.Duration // seconds
			DenyTTL        time.Duration // seconds
			RetryBackoff   time.Duration // milliseconds
			DefaultAllow   bool
		}
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		return Plugin{}, err
	}
	c := &file.ImagePolicy
	for _, d := range []struct {
		value                        *time.Duration
		unit, least, most, otherwise time.Duration
	}{
		{&c.RetryBackoff, time.Millisecond, 1, 5 * time.Minute, 500 * time.Millisecond},
		{&c.AllowTTL, time.Second, time.Second, 30 * time.Minute, 5 * time.Minute},
		{&c.DenyTTL, time.Second, time.Second, 30 * time.Minute, 30 * time.Second},
	} {
		var err error
		if *d.value, err = durationOf(*d.value, d.unit, d.least, d.most, d.otherwise); err != nil {
			return Plugin{}, err
		}
	}
	client, err := webhook.Open(c.KubeConfigFile, webhook.Options{FirstPause: c.RetryBackoff})
	if err != nil {
		return Plugin{}, err
	}
	reviewer := imageReviewer{client: client, answers: cache.NewLRUExpireCache(1024), allow: c.AllowTTL, deny: c.DenyTTL, failOpen: c.DefaultAllow}
	return Plugin{
		On:       either(on("", "pods", Create, Update), on("", "pods/ephemeralcontainers", Create, Update)),
		Validate: onPods(reviewer.review),
	}, nil
}

// durationOf: 0 is the default, -1 is none.
func durationOf(value, unit, least, most, otherwise time.Duration) (time.Duration, error) {
	switch value {
	case -1:
		return 0, nil
	case 0:
		return otherwise, nil
	}
	if value *= unit; value < least || value > most {
		return 0, fmt.Errorf("valid value is between %v and %v, got %v", least, most, value)
	}
	return value, nil
}

type imageReviewer struct {
	client      *webhook.Client
	answers     *cache.LRUExpireCache
	allow, deny time.Duration // how long answers are remembered
	failOpen    bool
}

const imagePolicyAudit = "imagepolicywebhook.image-policy.k8s.io/"

func (i imageReviewer) review(ctx context.Context, r *Request, pod *corev1.Pod) error {
	review := &imagepolicyv1alpha1.ImageReview{
		TypeMeta: metav1.TypeMeta{APIVersion: imagepolicyv1alpha1.SchemeGroupVersion.String(), Kind: "ImageReview"},
		Spec:     imagepolicyv1alpha1.ImageReviewSpec{Namespace: r.Namespace, Annotations: map[string]string{}},
	}
	ask := func(image string) {
		review.Spec.Containers = append(review.Spec.Containers, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: image})
	}
	if r.Subresource != "" {
		for _, c := range pod.Spec.EphemeralContainers {
			ask(c.Image)
		}
	} else {
		for _, c := range pod.Spec.Containers {
			ask(c.Image)
		}
		for _, c := range pod.Spec.InitContainers {
			ask(c.Image)
		}
	}
	for key, value := range pod.Annotations {
		if strings.Contains(key, ".image-policy.k8s.io/") {
			review.Spec.Annotations[key] = value
		}
	}
	answer, err := i.answer(ctx, review)
	if err != nil && i.failOpen {
		r.annotate(imagePolicyAudit+"failed-open", "true")
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, corev1.ImagePolicyFailedOpenKey, "true")
		return nil
	}
	if err != nil {
		return r.forbid("%w", err)
	}
	for key, value := range answer.AuditAnnotations {
		r.annotate(imagePolicyAudit+key, value)
	}
	switch {
	case answer.Allowed:
		return nil
	case answer.Reason != "":
		return r.forbid("image policy webhook backend denied one or more images: %s", answer.Reason)
	}
	return r.forbid("one or more images rejected by webhook backend")
}

// answer is the service's, or what it said to the same question before.
func (i imageReviewer) answer(ctx context.Context, review *imagepolicyv1alpha1.ImageReview) (imagepolicyv1alpha1.ImageReviewStatus, error) {
	var none imagepolicyv1alpha1.ImageReviewStatus
	key, err := json.Marshal(review.Spec)
	if err != nil {
		return none, err
	}
	if known, ok := i.answers.Get(string(key)); ok {
		if status, ok := known.(imagepolicyv1alpha1.ImageReviewStatus); ok {
			return status, nil
		}
	}
	if err := i.client.Post(ctx, review, review); err != nil {
		return none, err
	}
	remember := i.deny
	if review.Status.Allowed {
		remember = i.allow
	}
	i.answers.Add(string(key), review.Status, remember)
	return review.Status, nil
}
