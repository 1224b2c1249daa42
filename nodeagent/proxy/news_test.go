package proxy

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"orrery.dev/api"
	"orrery.dev/trace"
)

func TestRoutesToNewPodsAreToldOf(t *testing.T) {
	slice := func(ready map[string]bool) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "shop", UID: "slice"}}
		for uid, is := range ready {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Conditions: discoveryv1.EndpointConditions{Ready: &is}, TargetRef: &corev1.ObjectReference{Kind: "Pod", UID: types.UID(uid)},
			})
		}
		return s
	}
	for _, c := range []struct {
		before, after map[string]bool
		told          string // the pod that is; "": none
	}{
		{nil, map[string]bool{"a": true}, "a"},
		{map[string]bool{"a": false}, map[string]bool{"a": true}, "a"},
		{map[string]bool{"a": true}, map[string]bool{"a": true, "b": true}, "b"},
		{map[string]bool{"a": true}, map[string]bool{"a": true, "b": false}, ""},
		{map[string]bool{"a": true}, map[string]bool{}, ""},
	} {
		window := trace.NewWindow()
		tracer := trace.New("kube-proxy", trace.NewReceiver(window, nil, nil), nil)
		var n news
		n.add(slice(c.before), slice(c.after))
		for _, changed := range n.take() {
			changed.tell(Config{NodeName: "one", Trace: tracer}, time.Now(), nil)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := tracer.Run(ended); err != nil { // sends what is there
			t.Fatal(err)
		}
		for _, pod := range []string{"a", "b"} {
			got := window.Journey(pod, "", func(api.JourneyObject) bool { return true })
			if want := pod == c.told; want != (len(got.Spans) == 1) || want && (got.Spans[0].Node != "one" || got.Objects[0].Name != "web-1") {
				t.Errorf("%v to %v: of %s is told %+v", c.before, c.after, pod, got)
			}
		}
		if len(n.take()) > 0 {
			t.Error("news are told twice")
		}
	}
}
