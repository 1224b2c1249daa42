package storage

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/fields"
)

// told is the value of a metric, of a histogram how often it was observed, by
// labels as they are ordered.
func told(t *testing.T, s *Store, name string, labels ...string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name && values(m) == strings.Join(labels, " ") {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return -1
}

func values(m *dto.Metric) string {
	var all []string
	for _, l := range m.Label {
		all = append(all, l.GetName()+"="+l.GetValue())
	}
	return strings.Join(all, " ")
}

func TestStoreIsMeasured(t *testing.T) {
	backends(t, func(t *testing.T, b Backend) {
		s := runStore(t, b, Options{}, podResource, widgetResource)
		pods := s.Collection(podResource.GroupResource)
		for _, name := range []string{"a", "b"} {
			if _, err := pods.Create(t.Context(), pod("ns", name, onNode("n")), WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		list := func(o ListOptions) {
			t.Helper()
			if _, err := pods.List(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		list(ListOptions{})
		list(ListOptions{Selection: Selection{Fields: fields.OneTermEqualSelector("spec.nodeName", "other")}})
		if _, err := pods.Delete(t.Context(), "ns", "a", WriteOptions{}, nil); err != nil {
			t.Fatal(err)
		}
		list(ListOptions{})
		if _, err := pods.Watch(t.Context(), WatchOptions{}); err != nil {
			t.Fatal(err)
		}
		for metric, want := range map[string]float64{
			"etcd_request_duration_seconds group= operation=create resource=pods":                          2,
			"etcd_requests_total group= operation=delete resource=pods":                                    1,
			"etcd_requests_total group=example.com operation=list resource=widgets":                        1,
			"apiserver_storage_events_received_total group= resource=pods":                                 3,
			"apiserver_watch_cache_events_received_total group= resource=pods":                             3,
			"apiserver_watch_cache_initializations_total group= resource=pods":                             1,
			"apiserver_watch_cache_initialization_duration_seconds group= resource=pods":                   1,
			"apiserver_watch_cache_read_wait_seconds group= resource=pods":                                 4,
			"apiserver_watch_cache_consistent_read_total fallback=false group= resource=pods success=true": 3,
			"watch_cache_capacity group= resource=pods":                                                    minWindow,
			"apiserver_init_events_total group= resource=pods":                                             1,
			"apiserver_storage_list_total group= index= resource=pods storage=watch_cache":                 3, // the watch's, too
			"apiserver_storage_list_total group= index=f:spec.nodeName resource=pods storage=watch_cache":  1,
			"apiserver_storage_list_fetched_objects_total group= index= resource=pods storage=watch_cache": 4,
			"apiserver_storage_list_returned_objects_total group= resource=pods storage=watch_cache":       4,
			"apiserver_resource_objects group= resource=pods":                                              1,
		} {
			name, labels, _ := strings.Cut(metric, " ")
			if got := told(t, s, name, labels); got != want {
				t.Errorf("%s %v, want %v", metric, got, want)
			}
		}
		if _, measured := b.(*Etcd); measured && told(t, s, "apiserver_storage_size_bytes", "storage_cluster_id=etcd-0") <= 0 {
			t.Error("etcd has no size")
		}
	})
}

// readOnly is a Backend that takes no writes.
type readOnly struct{ Backend }

func (readOnly) Put(context.Context, string, []byte, int64, int64) (Outcome, error) {
	return Outcome{}, errors.New("read-only")
}

func TestFailuresAreMeasured(t *testing.T) {
	b := newMemory(t)
	s := runStore(t, readOnly{b}, Options{}, podResource)
	if _, err := b.Put(t.Context(), "/registry/pods/ns/bad", []byte("rubbish"), 0, 0); err != nil {
		t.Fatal(err)
	}
	pods := s.Collection(podResource.GroupResource)
	if _, err := pods.List(t.Context(), ListOptions{}); err != nil {
		t.Log(err)
	}
	if got := told(t, s, "apiserver_storage_decode_errors_total", "group= resource=pods"); got != 1 {
		t.Errorf("%v objects could not be read", got)
	}
	if _, err := pods.Create(t.Context(), pod("ns", "c"), WriteOptions{}); err == nil {
		t.Fatal("written")
	}
	if got := told(t, s, "etcd_request_errors_total", "group= operation=create resource=pods"); got != 1 {
		t.Errorf("%v errors", got)
	}
}
