package tui

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestYAMLIsLoadedAnewIfThatIsWanted(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "data", Name: "db-0", Labels: map[string]string{"turn": "first"}}}
	s := makeShow(t, Config{}, allowing(t, nil, pod))
	var later atomic.Int64
	s.app.now = func() time.Time { return testNow.Add(time.Duration(later.Load())) }
	s.run(100, 30)
	s.await("db-0")
	s.keys("/", "name:db-0", tcell.KeyEnter)
	s.await("[1/4]")
	s.keys("y")
	s.await("turn: first", "<r> live")
	change := func(turn string) {
		o, err := s.app.cluster.any.Resource(s.app.kinds.byPlural("pods").gvr()).Namespace("data").Get(t.Context(), "db-0", metav1.GetOptions{})
		if err == nil {
			o.SetLabels(map[string]string{"turn": turn})
			_, err = s.app.cluster.any.Resource(s.app.kinds.byPlural("pods").gvr()).Namespace("data").Update(t.Context(), o, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.keys("r")
	s.await("[live]")
	change("second")
	later.Add(int64(liveEach))
	s.await("turn: second")
	s.keys("r")
	s.awaitGone("[live]")
	change("third")
	later.Add(int64(liveEach))
	s.text()
	s.keys(tcell.KeyEscape, "y") // which loads it
	s.await("turn: third")
}

func TestColumnOfLogsIsLocked(t *testing.T) {
	s := makeShow(t, Config{}, shop(troubled(t)))
	s.run(120, 30)
	s.await("ada")
	open := func() {
		s.app.post(func() {
			s.app.showLogs(target{kind: s.app.kinds.byPlural("pods"), namespace: "shop", name: "cart-5f6c8d-k9r2x", container: "cart"}, false)
		})
	}
	open()
	s.await("INFO  listening on :8080")
	s.keys("w", tcell.KeyRight, "L")
	s.await("[column locked]", "stening on :8080")
	s.awaitGone("INFO  listening")
	s.keys(tcell.KeyEscape)
	s.awaitGone("[column locked]")
	open()
	s.await("[column locked]", "stening on :8080")
	s.awaitGone("INFO  listening")
	s.keys("L", tcell.KeyEscape)
	s.await("pods(all)")
	open()
	s.await("INFO  listening on :8080", "[wrap]")
}

func TestWhatIsNotOfferedSaysWhatToUse(t *testing.T) {
	s := newShow(t, Config{}, 130, 60)
	s.await("db-0")
	s.keys(":vulnerabilities", tcell.KeyEnter)
	s.await("vulnerabilities: not offered; use a scanner like trivy")
	s.keys(":services", tcell.KeyEnter)
	s.await("services(all)")
	s.keys("b")
	s.await("bench: not offered; port-forward it and use hey or wrk")
	s.keys("?")
	s.await("Keys and commands of services")
	s.keys("/", ":bench", tcell.KeyEnter)
	s.await("▸", ":bench", "✗ not offered; port-forward")
}
