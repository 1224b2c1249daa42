package client

import (
	"testing"

	"k8s.io/client-go/rest"
)

// What becomes of its spans is told by every component that makes some.
func TestLostSpansAreCounted(t *testing.T) {
	spans, err := Spans(&rest.Config{Host: "https://127.0.0.1:1"}, "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	families, err := Measured(spans).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "orrery_trace_spans_dropped_total" {
			return
		}
	}
	t.Error("they are not")
}
