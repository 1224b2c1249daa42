package tui

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/gdamore/tcell/v2"

	"orrery.dev/api"
)

// aJourney is a Deployment's change, as far as its first pod's readiness.
func aJourney() api.Journey {
	detail := func(k, v string) []api.SpanAttribute { return []api.SpanAttribute{{Key: k, Value: v}} }
	return api.Journey{
		Objects: []api.JourneyObject{{UID: "d", Group: "apps", Resource: "deployments", Namespace: "shop", Name: "web"}, {UID: "p", Resource: "pods", Namespace: "shop", Name: "web-1", Owner: "d"}},
		Change:  "1", Changes: []api.JourneyChange{{Span: "1", Name: "create deployments", User: "ada"}},
		Spans: []api.Span{
			{ID: "1", Object: "d", Component: "kube-apiserver", Name: "create deployments", Start: 1000, Duration: 20_000},
			{ID: "2", Parent: "1", Object: "d", Component: "kube-apiserver", Name: "admission: mutating", Start: 2000, Duration: 3000},
			{ID: "3", Parent: "1", Object: "d", Component: "kube-apiserver", Name: "etcd commit", Start: 6000, Duration: 12_000},
			{ID: "4", Parent: "1", Object: "d", Component: "kube-apiserver", Name: "watch delivery", Start: 21_000, Duration: 500, Details: detail("to", "kube-controller-manager")},
			{ID: "5", Parent: "4", Object: "p", Component: "kube-scheduler", Name: "schedule", Start: 40_000, Duration: 30_000},
			{ID: "6", Object: "p", Component: "kubelet", Node: "node-1", Name: "pull image", Start: 100_000, Duration: 700_000, Details: detail("container", "web")},
			{ID: "7", Object: "p", Component: "kubelet", Node: "node-1", Name: "start container", Start: 800_000, Duration: 2000, Failed: true, Error: "no such file"},
			{ID: "8", Object: "p", Component: "kube-apiserver", Name: "patch pods", Start: 900_000, Duration: 1000, Details: detail(milestone, "ready")},
			{ID: "9", Object: "p", Component: "kubelet", Node: "node-1", Name: "sync", Start: 5_000_000, Duration: 1000},
		},
		Hidden: 2,
	}
}

func TestJourneyScreen(t *testing.T) {
	tells := func(a *app) {
		a.ask = func(_ context.Context, path string, _ url.Values, answer any) error {
			data, err := json.Marshal(aJourney())
			if err != nil || path != api.JourneyPath {
				return err
			}
			return json.Unmarshal(data, answer)
		}
	}
	s := newShow(t, Config{}, 130, 36, tells)
	s.await("db-0", "v0.0.0")
	s.keys("T")
	got := s.await("Done after 900 ms", "watch delivery → controll", "██████████", "no such file", "2 objects that you may not read")
	if strings.Contains(got, "5.00 s") {
		t.Errorf("what came after the arrival is another story:\n%s", got)
	}
	golden(t, "journey", got)
	s.screen.SetSize(80, 24)
	s.screen.PostEventWait(tcell.NewEventResize(80, 24))
	s.await("kubelet node-1 pull image web           99 ms    700 ms   █████████████") // a resize lays it out anew
}

func TestWaterfall(t *testing.T) {
	for _, c := range []struct {
		start, duration, whole int64
		width                  int
		want                   string
	}{
		{0, 100, 100, 10, "██████████"}, {50, 50, 100, 10, "     █████"}, {0, 1, 100, 10, "▏"}, {100, 0, 100, 10, "         ▏"},
		{90, 100, 100, 10, "         █"}, {0, 100, 100, 3, ""}, {0, 0, 0, 10, ""},
	} {
		if got := waterfall(c.start, c.duration, c.whole, c.width); got != c.want {
			t.Errorf("%d+%d of %d in %d: %q, want %q", c.start, c.duration, c.whole, c.width, got, c.want)
		}
	}
	for us, want := range map[int64]string{400: "0.4 ms", 23_400: "23 ms", 1_254_000: "1.25 s", 12_340_000: "12.3 s", 185_000_000: "3 min 5 s"} {
		if got := millis(us); got != want {
			t.Errorf("%d µs: %q, want %q", us, got, want)
		}
	}
}
