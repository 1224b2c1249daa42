package admission

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
)

type eventLimit struct {
	Type      string `json:"type"`
	QPS       int32  `json:"qps"`
	Burst     int32  `json:"burst"`
	CacheSize int32  `json:"cacheSize"`
}

// eventKeys is what events are counted by.
var eventKeys = map[string]func(*Request) string{
	"Server":    func(*Request) string { return "" },
	"Namespace": func(r *Request) string { return r.Namespace },
	"User": func(r *Request) string {
		if r.User == nil {
			return ""
		}
		return r.User.GetName()
	},
	"SourceAndObject": func(r *Request) string {
		e, ok := r.Object.(*corev1.Event)
		if !ok {
			return ""
		}
		o := e.InvolvedObject
		return strings.Join([]string{e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion}, "")
	},
}

// eventRateLimit refuses events that come faster than it is configured.
func eventRateLimit(raw []byte) (Plugin, error) {
	var config struct {
		APIVersion string       `json:"apiVersion"`
		Kind       string       `json:"kind"`
		Limits     []eventLimit `json:"limits"`
	}
	if raw != nil {
		kind := schema.GroupVersionKind{Group: "eventratelimit.admission.k8s.io", Version: "v1alpha1", Kind: "Configuration"}
		if err := decodeConfiguration(raw, &config, kind); err != nil {
			return Plugin{}, err
		}
	}
	if errs := checkEventLimits(config.Limits); len(errs) > 0 {
		return Plugin{}, errs.ToAggregate()
	}
	var buckets []*eventBuckets
	for _, l := range config.Limits {
		buckets = append(buckets, newEventBuckets(l))
	}
	return Plugin{
		On: func(r *Request) bool { return on("", "events", Create, Update)(r) && !r.DryRun },
		Validate: func(_ context.Context, r *Request) error {
			var errs []error
			for _, b := range buckets { // all of them count it
				errs = append(errs, b.accept(r))
			}
			if err := utilerrors.NewAggregate(errs); err != nil {
				return apierrors.NewTooManyRequestsError(err.Error())
			}
			return nil
		},
	}, nil
}

func checkEventLimits(limits []eventLimit) (errs field.ErrorList) {
	path := field.NewPath("limits")
	if len(limits) == 0 {
		errs = append(errs, field.Invalid(path, limits, "must not be empty"))
	}
	for i, l := range limits {
		at := path.Index(i)
		if eventKeys[l.Type] == nil {
			errs = append(errs, field.NotSupported(at.Child("type"), l.Type, []string{"Namespace", "Server", "SourceAndObject", "User"}))
		}
		if l.Burst <= 0 {
			errs = append(errs, field.Invalid(at.Child("burst"), l.Burst, "must be positive"))
		}
		if l.QPS <= 0 {
			errs = append(errs, field.Invalid(at.Child("qps"), l.QPS, "must be positive"))
		}
		if l.Type != "Server" && l.CacheSize < 0 {
			errs = append(errs, field.Invalid(at.Child("cacheSize"), l.CacheSize, "must not be negative"))
		}
	}
	return errs
}

// eventBuckets is a limit's bucket of tokens per key; those that are not used for
// long are forgotten.
type eventBuckets struct {
	eventLimit
	mu    sync.Mutex // so that two do not make a bucket of one key
	byKey *lru.Cache
}

func newEventBuckets(l eventLimit) *eventBuckets {
	size := int(l.CacheSize)
	if size == 0 {
		size = 4096
	}
	return &eventBuckets{eventLimit: l, byKey: lru.New(size)}
}

func (b *eventBuckets) accept(r *Request) error {
	key := eventKeys[b.Type](r)
	b.mu.Lock()
	bucket, ok := b.byKey.Get(key)
	if !ok {
		bucket = flowcontrol.NewTokenBucketRateLimiter(float32(b.QPS), int(b.Burst))
		b.byKey.Add(key, bucket)
	}
	b.mu.Unlock()
	if limiter, ok := bucket.(flowcontrol.RateLimiter); !ok || limiter.TryAccept() {
		return nil
	}
	return fmt.Errorf("limit reached on type %v for key %v", b.Type, key)
}
