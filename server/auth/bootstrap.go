package auth

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// Store is what Bootstrap reads and writes through.
type Store interface {
	Reader
	Writer
	List(ctx context.Context, resource schema.GroupResource, namespace string) ([]runtime.Object, error)
}

// Step is a part of what every cluster has, by the name of upstream's hook.
type Step struct {
	Name string
	Run  func(ctx context.Context) error
}

// BootstrapSteps make sure that the objects exist that every cluster has: system
// namespaces, priority classes, flow schemas and priority levels, roles and
// bindings. What users added to them stays; what is missing is added, unless an
// object's autoupdate annotation says false. The writes carry no user and pass
// no admission. It is safe to run them in several API servers at once, and they
// depend on nothing: side by side, etcd can write it all out in few batches.
func BootstrapSteps(s Store) []Step {
	return []Step{
		grouped("start-system-namespaces-controller", func(w writes) {
			ensureEach(w, s, core("namespaces"), systemNamespaces(), nil)
		}),
		grouped("start-legacy-token-tracking-controller", func(w writes) {
			ensureEach(w, s, core("configmaps"), []*corev1.ConfigMap{trackingSince(time.Now())}, func(have, want *corev1.ConfigMap) {
				if _, err := time.Parse(time.DateOnly, have.Data["since"]); err != nil {
					have.Data = want.Data
				}
			})
		}),
		grouped("rbac/bootstrap-roles", func(w writes) { bootstrapRBAC(w, s) }),
		grouped("scheduling/bootstrap-system-priority-classes", func(w writes) {
			ensureEach(w, s, schema.GroupResource{Group: "scheduling.k8s.io", Resource: "priorityclasses"}, priorityClasses(), nil)
		}),
		grouped("priority-and-fairness-config-producer", func(w writes) { bootstrapFlow(w, s) }),
	}
}

// writes takes those of a step, which are side by side.
type writes func(write func(context.Context) error)

func grouped(name string, begin func(writes)) Step {
	return Step{name, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(bootstrapWriters)
		begin(func(write func(context.Context) error) { group.Go(func() error { return write(ctx) }) })
		return group.Wait()
	}}
}

// ensureEach ensures many objects of a kind.
func ensureEach[T stored](w writes, s Store, resource schema.GroupResource, all []T, complete func(have, want T)) {
	for _, want := range all {
		w(func(ctx context.Context) error {
			return ensure(ctx, s, resource, want, func(have T) {
				if complete != nil {
					complete(have, want)
				}
			})
		})
	}
}

// trackingSince is the object that says since when Secrets with tokens of
// service accounts are labelled with the day of their last use.
func trackingSince(now time.Time) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-legacy-service-account-token-tracking"},
		Data:       map[string]string{"since": now.UTC().Format(time.DateOnly)},
	}
}

// bootstrapWriters bounds the writes in flight.
const bootstrapWriters = 32

func bootstrapRBAC(w writes, s Store) {
	roles, err := BootstrapRoles()
	if err != nil {
		w(func(context.Context) error { return err })
		return
	}
	ensureEach(w, s, rbac("clusterroles"), roles.ClusterRoles, reconcileClusterRole)
	ensureEach(w, s, rbac("roles"), roles.Roles, func(have, want *rbacv1.Role) {
		if autoUpdates(&have.ObjectMeta, want.ObjectMeta) {
			have.Rules = addMissing(have.Rules, want.Rules)
		}
	})
	for _, o := range roles.ClusterRoleBindings {
		w(func(ctx context.Context) error {
			return ensureBinding(ctx, s, rbac("clusterrolebindings"), o, func(have *rbacv1.ClusterRoleBinding) bool { return have.RoleRef == o.RoleRef }, func(have *rbacv1.ClusterRoleBinding) {
				if autoUpdates(&have.ObjectMeta, o.ObjectMeta) {
					have.Subjects = addSubjects(have.Subjects, o.Subjects)
				}
			})
		})
	}
	for _, o := range roles.RoleBindings {
		w(func(ctx context.Context) error {
			return ensureBinding(ctx, s, rbac("rolebindings"), o, func(have *rbacv1.RoleBinding) bool { return have.RoleRef == o.RoleRef }, func(have *rbacv1.RoleBinding) {
				if autoUpdates(&have.ObjectMeta, o.ObjectMeta) {
					have.Subjects = addSubjects(have.Subjects, o.Subjects)
				}
			})
		})
	}
}

// stored is a pointer type of the API.
type stored interface {
	runtime.Object
	metav1.Object
}

// ensure creates an object, or lets complete (nil: nothing) fill in what the
// present one lacks.
func ensure[T stored](ctx context.Context, s Store, resource schema.GroupResource, want T, complete func(have T)) error {
	namespace, name := want.GetNamespace(), want.GetName()
	current, err := s.Get(ctx, resource, namespace, name)
	if apierrors.IsNotFound(err) {
		created := want.DeepCopyObject().(T)
		// Writes below the verbs are not defaulted: fill in what every object has.
		created.SetCreationTimestamp(metav1.Now())
		created.SetUID(uuid.NewUUID())
		if _, err = s.Create(ctx, resource, created); apierrors.IsAlreadyExists(err) {
			return nil // another API server was faster
		}
		return bootstrapError(resource, want, err)
	}
	if err != nil || complete == nil {
		return bootstrapError(resource, want, err)
	}
	if have, ok := current.DeepCopyObject().(T); ok {
		if complete(have); equality.Semantic.DeepEqual(current, have) {
			return nil
		}
	}
	_, err = s.Update(ctx, resource, namespace, name, func(current runtime.Object) (runtime.Object, error) {
		have, ok := current.(T)
		if !ok {
			return nil, fmt.Errorf("stored as %T", current)
		}
		complete(have)
		return have, nil
	})
	return bootstrapError(resource, want, err)
}

// ensureBinding replaces a binding to another role: a binding's role cannot be
// changed.
func ensureBinding[T stored](ctx context.Context, s Store, resource schema.GroupResource, want T, sameRole func(T) bool, complete func(T)) error {
	current, err := s.Get(ctx, resource, want.GetNamespace(), want.GetName())
	if have, ok := current.(T); err == nil && ok && !sameRole(have) && have.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] != "false" {
		if err := s.Delete(ctx, resource, want.GetNamespace(), want.GetName()); err != nil && !apierrors.IsNotFound(err) {
			return bootstrapError(resource, want, err)
		}
	}
	return ensure(ctx, s, resource, want, complete)
}

func bootstrapError(resource schema.GroupResource, o metav1.Object, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("bootstrap %s %s: %w", resource, o.GetName(), err)
}

func reconcileClusterRole(have, want *rbacv1.ClusterRole) {
	if !autoUpdates(&have.ObjectMeta, want.ObjectMeta) {
		return
	}
	if want.AggregationRule == nil {
		have.Rules = addMissing(have.Rules, want.Rules)
		return
	}
	// The rules of an aggregating role are its controller's.
	if have.AggregationRule == nil {
		have.AggregationRule = &rbacv1.AggregationRule{}
	}
	for _, selector := range want.AggregationRule.ClusterRoleSelectors {
		if !slices.ContainsFunc(have.AggregationRule.ClusterRoleSelectors, func(s metav1.LabelSelector) bool { return equality.Semantic.DeepEqual(s, selector) }) {
			have.AggregationRule.ClusterRoleSelectors = append(have.AggregationRule.ClusterRoleSelectors, selector)
		}
	}
}

// autoUpdates reports whether a stored object may be changed, and if so adds
// missing labels and annotations.
func autoUpdates(have *metav1.ObjectMeta, want metav1.ObjectMeta) bool {
	if have.Annotations[rbacv1.AutoUpdateAnnotationKey] == "false" {
		return false
	}
	have.Labels = addKeys(have.Labels, want.Labels)
	have.Annotations = addKeys(have.Annotations, want.Annotations)
	return true
}

func addKeys(have, want map[string]string) map[string]string {
	for k, v := range want {
		if _, ok := have[k]; ok {
			continue
		}
		if have == nil {
			have = map[string]string{}
		}
		have[k] = v
	}
	return have
}

func addMissing(have, want []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	_, missing := validation.Covers(have, want)
	return append(have, compact(missing)...)
}

func addSubjects(have, want []rbacv1.Subject) []rbacv1.Subject {
	for _, s := range want {
		if !slices.Contains(have, s) {
			have = append(have, s)
		}
	}
	return have
}

func priorityClasses() []*schedulingv1.PriorityClass {
	preempt := corev1.PreemptLowerPriority
	return []*schedulingv1.PriorityClass{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "system-node-critical", Generation: 1}, Value: 2000001000, PreemptionPolicy: &preempt,
			Description: "Used for system critical pods that must not be moved from their current node.",
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "system-cluster-critical", Generation: 1}, Value: 2000000000, PreemptionPolicy: &preempt,
			Description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
		},
	}
}

// systemNamespaces exist in every cluster.
func systemNamespaces() []*corev1.Namespace {
	var all []*corev1.Namespace
	for _, name := range []string{"kube-system", "kube-public", "kube-node-lease", "default"} {
		all = append(all, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}},
		})
	}
	return all
}
