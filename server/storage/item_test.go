package storage

import (
	"bytes"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// An item whose object and encodings were let go of gives the same again.
func TestTidy(t *testing.T) {
	s := runStore(t, newMemory(t), Options{}, podResource)
	c := s.Collection(podResource.GroupResource)
	mustCreate(t, c, pod("a", "x", onNode("n1")))
	item, err := c.Get(t.Context(), "a", "x", "")
	if err != nil {
		t.Fatal(err)
	}
	encoded := 0
	encode := func(obj runtime.Object) ([]byte, error) {
		encoded++
		return obj.(*corev1.Pod).Marshal()
	}
	before, err := item.Encoded("test", encode)
	if err != nil {
		t.Fatal(err)
	}
	obj := item.Object().(*corev1.Pod)
	for range idleOnce {
		c.tidy()
	}
	if item.Object() != runtime.Object(obj) {
		t.Error("the object was let go of too soon")
	}
	for range idleShared + 1 {
		c.tidy()
	}
	if item.object.Load() != nil || item.encoded.all != nil {
		t.Errorf("not let go of: %v %v", item.object.Load(), item.encoded.all)
	}
	after, err := item.Encoded("test", encode)
	if err != nil || encoded != 2 || !bytes.Equal(before, after) {
		t.Errorf("encoded %d times, first %q, then %q (%v)", encoded, before, after, err)
	}
	if got := item.Object().(*corev1.Pod); got.ResourceVersion != obj.ResourceVersion || got.Spec.NodeName != "n1" {
		t.Errorf("decoded again: %v", got)
	}
}

// The message spliced from a value is the one that encoding gives, and what cannot
// be spliced is encoded.
func TestProtobuf(t *testing.T) {
	defaulting := podResource
	defaulting.Default = func(obj runtime.Object) { obj.(*corev1.Pod).Spec.SchedulerName = "defaulted" }
	for name, r := range map[string]Resource{"as stored": podResource, "defaulted": defaulting} {
		t.Run(name, func(t *testing.T) {
			c := runStore(t, newMemory(t), Options{}, r).Collection(r.GroupResource)
			for n := range 3 {
				item := mustCreate(t, c, pod("a", fmt.Sprint("x", n), onNode("n1")))
				want, err := item.Object().(*corev1.Pod).Marshal()
				if err != nil {
					t.Fatal(err)
				}
				got, err := item.Protobuf()
				if whole := append(bytes.Clone(got.Head), got.Rest...); err != nil || !bytes.Equal(whole, want) || got.Len() != len(want) {
					t.Errorf("got %q (%v)\nwant %q", whole, err, want)
				}
				if spliced := len(got.Head) > 0; spliced != (name == "as stored") {
					t.Errorf("spliced: %v", spliced)
				}
			}
		})
	}
}
