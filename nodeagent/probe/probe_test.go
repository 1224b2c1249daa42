package probe

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// patient is a container whose exec probe answers as fails says.
type patient struct {
	fails   atomic.Bool
	broken  atomic.Bool
	probes  atomic.Int32
	changes atomic.Int32
	told    atomic.Value // string
}

func (p *patient) set() *Set {
	return NewSet(Config{
		Exec: func(context.Context, string, []string, time.Duration) (bool, string, error) {
			p.probes.Add(1)
			if p.broken.Load() {
				return false, "", errors.New("runtime is down")
			}
			return !p.fails.Load(), "sick", nil
		},
		Changed: func(types.UID) { p.changes.Add(1) },
		Tell:    func(_ *corev1.Pod, _ string, reason, text string) { p.told.Store(reason + ": " + text) },
	})
}

func execProbe(period, failures int32) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"x"}}}, PeriodSeconds: period, FailureThreshold: failures, SuccessThreshold: 1, TimeoutSeconds: 1}
}

func target(change func(*corev1.Container)) Target {
	pod := &corev1.Pod{}
	pod.UID = "u"
	c := &corev1.Container{Name: "c"}
	change(c)
	return Target{Pod: pod, Container: c, ID: "id", IP: "127.0.0.1", Started: time.Now()}
}

func TestReadinessFollowsTheContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &patient{}
		s := p.set()
		defer s.Close()
		p.fails.Store(true)
		s.Watch(target(func(c *corev1.Container) { c.ReadinessProbe = execProbe(10, 3) }))
		steps := []struct {
			after time.Duration
			fails bool
			ready bool
		}{
			{time.Second, false, false},     // the first probe failed
			{10 * time.Second, true, true},  // the second passed
			{20 * time.Second, true, true},  // two failures are not three
			{10 * time.Second, true, false}, // three are
		}
		for i, step := range steps {
			time.Sleep(step.after)
			synctest.Wait()
			if v, _ := s.Result("u", "c"); v.Ready != step.ready || v.Failed != "" {
				t.Errorf("step %d: %+v, want ready %v", i, v, step.ready)
			}
			p.fails.Store(step.fails)
		}
	})
}

func TestLivenessWaitsForStartup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &patient{}
		p.fails.Store(true)
		s := p.set()
		defer s.Close()
		s.Watch(target(func(c *corev1.Container) {
			c.StartupProbe, c.LivenessProbe = execProbe(10, 30), execProbe(1, 1)
		}))
		time.Sleep(95 * time.Second)
		synctest.Wait()
		if v, _ := s.Result("u", "c"); v.Started || v.Failed != "" {
			t.Errorf("before startup: %+v", v)
		}
		p.fails.Store(false)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if v, _ := s.Result("u", "c"); !v.Started || v.Failed != "" {
			t.Errorf("after startup: %+v", v)
		}
		p.fails.Store(true)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if v, _ := s.Result("u", "c"); !strings.Contains(v.Failed, "Liveness probe failed: sick") {
			t.Errorf("after failure: %+v", v)
		}
	})
}

// TestProbeThatCouldNotBeMade sees to it that trouble of the runtime is not held
// against the container.
func TestProbeThatCouldNotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &patient{}
		s := p.set()
		defer s.Close()
		s.Watch(target(func(c *corev1.Container) { c.LivenessProbe, c.ReadinessProbe = execProbe(1, 1), execProbe(1, 1) }))
		time.Sleep(2 * time.Second)
		p.broken.Store(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if v, _ := s.Result("u", "c"); v.Failed != "" || !v.Ready {
			t.Errorf("%+v", v)
		}
		if told := p.told.Load(); !strings.HasSuffix(told.(string), "probe errored and resulted in unknown state: runtime is down") {
			t.Errorf("told %q", told)
		}
	})
}

func TestRestartedContainerStartsAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &patient{}
		p.fails.Store(true)
		s := p.set()
		defer s.Close()
		tgt := target(func(c *corev1.Container) { c.LivenessProbe = execProbe(1, 1) })
		s.Watch(tgt)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if v, _ := s.Result("u", "c"); v.Failed == "" {
			t.Error("a failing liveness probe had no effect")
		}
		p.fails.Store(false)
		tgt.ID = "id2"
		s.Watch(tgt)
		synctest.Wait()
		if v, _ := s.Result("u", "c"); v.Failed != "" || v.ID != "id2" {
			t.Errorf("%+v", v)
		}
		s.Forget("u")
		if _, ok := s.Result("u", "c"); ok {
			t.Error("not forgotten")
		}
	})
}

func TestHTTP(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "/ok?x=1", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
		case "/sick":
			w.WriteHeader(http.StatusTeapot)
		case "/host":
			if r.Host != "me" || !strings.HasPrefix(r.UserAgent(), "kube-probe/") {
				w.WriteHeader(http.StatusBadRequest)
			}
		}
	}))
	defer srv.Close()
	_, text, _ := net.SplitHostPort(srv.Listener.Addr().String())
	n, _ := strconv.Atoi(text)
	tgt := target(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: int32(n)}} })
	for path, want := range map[string]bool{"/ok": true, "/redirect": true, "/away": true, "/sick": false, "/host": true} {
		get := &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("web"), HTTPHeaders: []corev1.HTTPHeader{{Name: "Host", Value: "me"}}}
		if got := probeHTTP(context.Background(), tgt, get, time.Second); got.ok != want || got.warning != (path == "/away") {
			t.Errorf("%s: %+v, want %v", path, got, want)
		}
	}
	if f := probeTCP(context.Background(), tgt, &corev1.TCPSocketAction{Port: intstr.FromInt32(int32(n))}, time.Second); !f.ok {
		t.Errorf("tcp probe of an open port: %+v", f)
	}
	if f := probeTCP(context.Background(), tgt, &corev1.TCPSocketAction{Port: intstr.FromString("none")}, time.Second); f.err == nil || !strings.Contains(f.err.Error(), "invalid port") {
		t.Errorf("tcp probe of an unknown port: %+v", f)
	}
}
