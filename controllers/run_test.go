package controllers

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"orrery.dev/api"
)

// fakeClients is client-go's fake API server, which reactors give the names, UIDs
// and revisions that a real one hands out (by the last, controllers know their own
// writes in what they read), and its rule that whoever writes the status leaves the
// rest as it is. A watch begins with all there is: here, nothing
// else tells a controller what came between its list and its watch.
func fakeClients(objs ...runtime.Object) *fake.Clientset {
	set := fake.NewClientset(objs...)
	var n atomic.Int64
	revise := func(obj runtime.Object) error {
		m, err := meta.Accessor(obj)
		if err == nil {
			m.SetResourceVersion(strconv.FormatInt(1000+n.Add(1), 10))
		}
		return err
	}
	write := func(action clienttesting.Action) (bool, runtime.Object, error) {
		done, obj, err := clienttesting.ObjectReaction(set.Tracker())(action)
		if err != nil || !done || action.GetSubresource() != "" && action.GetSubresource() != "status" {
			return done, obj, err
		}
		if err := revise(obj); err != nil {
			return true, nil, err
		}
		return true, obj, set.Tracker().Update(action.GetResource(), obj, action.GetNamespace())
	}
	for _, verb := range []string{"create", "update", "patch"} {
		set.PrependReactor(verb, "*", write)
	}
	set.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		o, err := meta.Accessor(action.(clienttesting.CreateAction).GetObject())
		if err != nil {
			return false, nil, nil
		}
		i := n.Add(1)
		if o.GetName() == "" {
			o.SetName(fmt.Sprintf("%s%05d", o.GetGenerateName(), i))
		}
		if o.GetUID() == "" {
			o.SetUID(types.UID(fmt.Sprintf("uid-%d", i)))
		}
		if o.GetCreationTimestamp().Time.IsZero() {
			o.SetCreationTimestamp(metav1.Now())
		}
		return false, nil, nil
	})
	set.PrependReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		update := action.(clienttesting.UpdateAction)
		meta, err := meta.Accessor(update.GetObject())
		if err != nil || update.GetSubresource() != "status" {
			return false, nil, nil
		}
		now, err := set.Tracker().Get(update.GetResource(), update.GetNamespace(), meta.GetName())
		if err != nil {
			return true, nil, err
		}
		now = now.DeepCopyObject()
		status := reflect.ValueOf(update.GetObject()).Elem().FieldByName("Status")
		reflect.ValueOf(now).Elem().FieldByName("Status").Set(status)
		if err := revise(now); err != nil {
			return true, nil, err
		}
		return true, now, set.Tracker().Update(update.GetResource(), now, update.GetNamespace())
	})
	kinds := map[schema.GroupVersionResource]schema.GroupVersionKind{}
	for kind := range scheme.Scheme.AllKnownTypes() {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		kinds[resource] = kind
	}
	set.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := set.Tracker().Watch(action.GetResource(), action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		return true, w, catchUp(w.(*watch.RaceFreeFakeWatcher), func() (runtime.Object, error) {
			return set.Tracker().List(action.GetResource(), kinds[action.GetResource()], action.GetNamespace())
		})
	})
	return set
}

// catchUp sends what there is, as the fake knows no revisions from which to watch. A
// change may come in between, and its event be ahead of what was listed before it: so
// whatever has changed is sent again, until nothing has.
func catchUp(w *watch.RaceFreeFakeWatcher, list func() (runtime.Object, error)) error {
	var before map[string]runtime.Object
	for {
		all, err := list()
		if err != nil {
			return err
		}
		now := map[string]runtime.Object{}
		if err := meta.EachListItem(all, func(obj runtime.Object) error {
			key, err := cache.MetaNamespaceKeyFunc(obj)
			now[key] = obj
			return err
		}); err != nil {
			return err
		}
		if before != nil && equality.Semantic.DeepEqual(before, now) {
			return nil
		}
		for key, obj := range before {
			if now[key] == nil {
				w.Delete(obj)
			}
		}
		for key, obj := range now {
			if !equality.Semantic.DeepEqual(before[key], obj) {
				w.Modify(obj.DeepCopyObject()) // what is sent is the informer's
			}
		}
		before = now
	}
}

// running runs controllers by name against a fake server until the test ends.
func running(t *testing.T, set *fake.Clientset, names ...string) *Board {
	t.Helper()
	return runningWith(t, Config{Clients: set, Only: names})
}

func runningWith(t *testing.T, cfg Config) *Board {
	t.Helper()
	cfg.Board = &Board{}
	if cfg.Metadata == nil {
		cfg.Metadata = metadatafake.NewSimpleMetadataClient(scheme.Scheme)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if t.Failed() {
			for _, s := range cfg.Board.Snapshot() {
				t.Logf("%+v", s)
			}
		}
	})
	return cfg.Board
}

// eventually waits until check stops complaining.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-ticker.C
	}
}

// playNode makes every pod of a namespace run and be ready.
func playNode(t *testing.T, set *fake.Clientset, namespace string) {
	t.Helper()
	pods, err := set.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if api.IsPodReady(&pod) || api.IsPodTerminal(&pod) {
			continue
		}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		_, err := set.CoreV1().Pods(namespace).UpdateStatus(context.Background(), &pod, metav1.UpdateOptions{})
		if ignoreGone(err) != nil {
			t.Fatal(err)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func podTemplate(labels map[string]string, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
}

func TestNamesAreKnown(t *testing.T) {
	cfg := Config{Clients: fakeClients(), Metadata: metadatafake.NewSimpleMetadataClient(scheme.Scheme), Only: []string{"*", "-deployment-controler"}}
	if err := cfg.complete(); err == nil {
		t.Error("a misspelt controller was accepted")
	}
	for _, c := range []struct {
		only []string
		name string
		want bool
	}{
		{nil, "a", true}, {[]string{"*"}, "a", true}, {[]string{"*", "-a"}, "a", false}, {[]string{"b"}, "a", false}, {[]string{"a"}, "a", true},
	} {
		cfg := Config{Only: c.only}
		if got := cfg.wanted(c.name); got != c.want {
			t.Errorf("wanted(%q) with %q = %v", c.name, c.only, got)
		}
	}
}

func TestEveryControllerHasItsOwnName(t *testing.T) {
	cfg := Config{Clients: fakeClients(), Metadata: metadatafake.NewSimpleMetadataClient(scheme.Scheme), ClusterCIDR: "10.244.0.0/16"}
	if err := cfg.complete(); err != nil {
		t.Fatal(err)
	}
	e, err := newEnv(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, row := range list() {
		if c := row.make(e); c.Name != row.name {
			t.Errorf("list says %q, the controller %q", row.name, c.Name)
		}
		if seen[row.name] {
			t.Errorf("%q is in the list twice", row.name)
		}
		seen[row.name] = true
	}
}
