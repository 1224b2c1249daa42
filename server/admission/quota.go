package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcequotav1 "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota/v1"

	"orrery.dev/api"
)

// resourceQuota refuses what would take a namespace over one of its quotas, and
// books what it lets through in the quota's status at once, so that two writes
// cannot share the last bit. The quota controller counts anew what is there;
// here is only added to, and given back if the write fails after all.
// raw is a configuration of what may only be used where there is a quota for it.
func resourceQuota(reader Reader, writer Writer, raw []byte) (Plugin, error) {
	var config resourcequotav1.Configuration
	if raw != nil {
		const old = "resourcequota.admission.k8s.io"
		if err := decodeConfiguration(raw, &config,
			schema.GroupVersionKind{Group: "apiserver.config.k8s.io", Version: "v1", Kind: "ResourceQuotaConfiguration"},
			schema.GroupVersionKind{Group: old, Version: "v1beta1", Kind: "Configuration"},
			schema.GroupVersionKind{Group: old, Version: "v1alpha1", Kind: "Configuration"}); err != nil {
			return Plugin{}, err
		}
	}
	for i, l := range config.LimitedResources {
		if l.Resource == "" {
			return Plugin{}, field.Required(field.NewPath("limitedResources").Index(i).Child("resource"), "")
		}
	}
	q := quotas{reader, writer, config.LimitedResources}
	return Plugin{
		On: func(r *Request) bool {
			return r.Namespace != "" && (r.Operation == Create || r.Operation == Update) && (r.Resource.Group != "" || r.Resource.Resource != "namespaces")
		},
		Validate: q.admit,
	}, nil
}

type quotas struct {
	reader  Reader
	writer  Writer
	limited []resourcequotav1.LimitedResource
}

func quotaResource() schema.GroupResource { return core("resourcequotas") }

// charge is what a write costs one quota.
type charge struct {
	quota string
	delta corev1.ResourceList
}

func (q quotas) admit(ctx context.Context, r *Request) error {
	delta, all := quotaDelta(r), entered(r)
	if len(delta)+len(all) == 0 {
		return nil
	}
	quotas, err := list[*corev1.ResourceQuota](ctx, q.reader, quotaResource(), r.Namespace)
	if err != nil {
		return err
	}
	var charges []charge
	about := map[string]*corev1.ResourceQuota{}
	for _, quota := range quotas {
		usage := delta
		if len(all) > 0 && !api.InQuotaScopes(quota, r.Old) {
			usage = all
		}
		if len(usage) == 0 {
			continue
		}
		cost, err := r.cost(quota, usage)
		if err != nil {
			return err
		}
		if len(cost) > 0 {
			charges = append(charges, charge{quota.Name, cost})
			about[quota.Name] = quota
		}
	}
	if len(q.limited) > 0 {
		if err := q.covered(r, quotas); err != nil {
			return err
		}
	}
	for _, c := range charges {
		if err := exceeds(about[c.quota], c.delta); err != nil {
			return r.forbid("%w", err)
		}
	}
	if r.DryRun || len(charges) == 0 {
		return nil
	}
	return q.book(ctx, r, charges)
}

// covered refuses the use of what is limited if no quota is about it.
func (q quotas) covered(r *Request, all []*corev1.ResourceQuota) error {
	usage := usageOf(r)
	var names, scopes []string
	var uncovered []corev1.ScopedResourceSelectorRequirement
	for _, l := range q.limited {
		for name, n := range usage {
			contains := func(part string) bool { return strings.Contains(string(name), part) }
			if l.APIGroup == r.Resource.Group && l.Resource == r.Resource.Resource && n.Sign() > 0 && slices.ContainsFunc(l.MatchContains, contains) && !slices.Contains(names, string(name)) {
				names = append(names, string(name))
			}
		}
		for _, s := range l.MatchScopes {
			if api.InQuotaScope(r.Object, s) {
				uncovered = append(uncovered, s)
			}
		}
	}
	for _, quota := range all {
		for _, s := range api.QuotaScopes(quota) {
			if api.InQuotaScope(r.Object, s) {
				scopes = append(scopes, string(s.ScopeName))
			}
		}
		if api.InQuotaScopes(quota, r.Object) {
			names = slices.DeleteFunc(names, func(name string) bool { _, ok := quota.Status.Hard[corev1.ResourceName(name)]; return ok })
		}
	}
	if len(names) > 0 {
		return r.forbid("insufficient quota to consume: %v", strings.Join(sortedStrings(names), ","))
	}
	uncovered = slices.DeleteFunc(uncovered, func(s corev1.ScopedResourceSelectorRequirement) bool {
		return slices.Contains(scopes, string(s.ScopeName))
	})
	if len(uncovered) > 0 {
		return fmt.Errorf("insufficient quota to match these scopes: %v", uncovered)
	}
	return nil
}

// cost is the part of delta that a quota limits, or why it cannot be told.
func (r *Request) cost(quota *corev1.ResourceQuota, delta corev1.ResourceList) (corev1.ResourceList, error) {
	if !api.InQuotaScopes(quota, r.Object) {
		return nil, nil
	}
	hard := quota.Status.Hard
	if pod, ok := r.Object.(*corev1.Pod); ok {
		if err := mustSpecify(pod, hard); err != nil {
			return nil, r.forbid("failed quota: %s: %w", quota.Name, err)
		}
	}
	cost := corev1.ResourceList{}
	var unknown []string
	for name, d := range delta {
		if _, limited := hard[name]; !limited {
			continue
		}
		cost[name] = d
		if _, counted := quota.Status.Used[name]; !counted {
			unknown = append(unknown, string(name))
		}
	}
	if len(unknown) > 0 {
		return nil, r.forbid("status unknown for quota: %s, resources: %s", quota.Name, strings.Join(sortedStrings(unknown), ","))
	}
	return cost, nil
}

// exceeds tells, in the words that users know, by what a quota is exceeded.
func exceeds(quota *corev1.ResourceQuota, cost corev1.ResourceList) error {
	asked, used, limited := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for name, d := range cost {
		if d.Sign() <= 0 {
			continue // less is always welcome
		}
		sum := quota.Status.Used[name].DeepCopy()
		sum.Add(d)
		if sum.Cmp(quota.Status.Hard[name]) > 0 {
			asked[name], used[name], limited[name] = d, quota.Status.Used[name], quota.Status.Hard[name]
		}
	}
	if len(asked) == 0 {
		return nil
	}
	return fmt.Errorf("exceeded quota: %s, requested: %s, used: %s, limited: %s", quota.Name, printList(asked), printList(used), printList(limited))
}

func printList(l corev1.ResourceList) string {
	var parts []string
	for _, name := range resourceNames(l) {
		q := l[name]
		parts = append(parts, string(name)+"="+q.String())
	}
	return strings.Join(parts, ",")
}

// book adds the charges, each in one transaction that looks at the limit again.
func (q quotas) book(ctx context.Context, r *Request, charges []charge) error {
	var booked []charge
	giveBack := func(ctx context.Context) {
		for _, c := range booked {
			if err := q.add(context.WithoutCancel(ctx), r.Namespace, c, -1); err != nil && !apierrors.IsNotFound(err) {
				slog.Warn("quota not given back", "quota", r.Namespace+"/"+c.quota, "err", err)
			}
		}
		booked = nil
	}
	for _, c := range charges {
		err := q.add(ctx, r.Namespace, c, 1)
		var over overQuota
		switch {
		case err == nil:
			booked = append(booked, c)
		case apierrors.IsNotFound(err): // the quota was just deleted
		case errors.As(err, &over):
			giveBack(ctx)
			return r.forbid("%w", over.error)
		default:
			giveBack(ctx)
			return err
		}
	}
	r.OnFinish(func(ctx context.Context, stored runtime.Object) {
		if stored == nil {
			giveBack(ctx)
		}
	})
	return nil
}

type overQuota struct{ error }

func (q quotas) add(ctx context.Context, namespace string, c charge, sign int) error {
	_, err := q.writer.Update(ctx, quotaResource(), namespace, c.quota, func(current runtime.Object) (runtime.Object, error) {
		quota, ok := current.(*corev1.ResourceQuota)
		if !ok {
			return nil, fmt.Errorf("quota %s/%s: stored as %T", namespace, c.quota, current)
		}
		if sign > 0 {
			if err := exceeds(quota, c.delta); err != nil {
				return nil, overQuota{err}
			}
		}
		for name, d := range c.delta {
			used, counted := quota.Status.Used[name]
			if !counted {
				continue
			}
			if sign > 0 {
				used.Add(d)
			} else {
				used.Sub(d)
			}
			if used.Sign() < 0 {
				used.Set(0)
			}
			quota.Status.Used[name] = used
		}
		return quota, nil
	})
	return err
}
