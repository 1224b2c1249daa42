package nodeagent

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// FuzzRequest asks an agent anything that somebody who is let in can ask: there is
// no panic, and no answer takes longer than the caller stays.
func FuzzRequest(f *testing.F) {
	for _, seed := range [][4]string{
		{"GET", "/containerLogs/ns/p/main?tailLines=3&limitBytes=10&sinceSeconds=1&timestamps=true", "", ""},
		{"GET", "/containerLogs/ns/p/main?tailLines=all&sinceTime=2020-01-01T00:00:00Z&stream=Stderr&follow=1&previous=x", "", ""},
		{"GET", "/containerLogs/ns/p/main?sinceSeconds=9223372036854775807&tailLines=9223372036854775807&limitBytes=0", "", ""},
		{"POST", "/run/ns/p/main?cmd=a+b", "", ""},
		{"POST", "/exec/ns/p/u/main?command=a&input=1&output=1&error=1&tty=1", "SPDY/3.1", ""},
		{"GET", "/exec/ns/p/main?command=a&output=1", "websocket", "v5.channel.k8s.io"},
		{"GET", "/attach/ns/p/main?output=true", "websocket", "v4.base64.channel.k8s.io, channel.k8s.io"},
		{"POST", "/portForward/ns/p?port=80,99999999999,-1,x", "SPDY/3.1", "portforward.k8s.io"},
		{"GET", "/portForward/ns/p/u?port=80&port=81", "websocket", "SPDY/3.1+portforward.k8s.io"},
		{"GET", "/stats/summary?only_cpu_and_memory=true", "", ""},
		{"GET", "/metrics/resource", "", ""},
		{"GET", "/pods/", "", ""},
		{"GET", "/runningpods/", "", ""},
		{"GET", "/logs/../../etc/passwd?query=kubelet&tailLines=1", "", ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	l := newLab(f)
	l.stop()
	server := NewSharedServer(kubeletconfig.KubeletConfiguration{})
	l.config.Server = server
	l.start()
	l.create(pod(corev1.RestartPolicyAlways, "main"))
	l.untilReady("p")
	server.mu.RLock()
	agent := server.agents[l.config.NodeIP]
	server.mu.RUnlock()
	mux := http.NewServeMux()
	for _, r := range agent.routes() {
		mux.Handle(r.pattern, r.serve)
	}
	f.Fuzz(func(t *testing.T, method, url, upgrade, protocols string) {
		if !strings.HasPrefix(url, "/") {
			return
		}
		r, err := http.NewRequest(method, "http://node"+url, http.NoBody)
		if err != nil || r.URL.Host != "node" {
			return // nobody could send it
		}
		r.RequestURI = r.URL.RequestURI()
		if upgrade != "" {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", upgrade)
			r.Header.Set("Sec-WebSocket-Protocol", protocols)
			r.Header.Set("X-Stream-Protocol-Version", protocols)
			r.Header.Set("Sec-WebSocket-Version", "13")
			r.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		mux.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s %s took %v", method, url, took)
		}
	})
}
