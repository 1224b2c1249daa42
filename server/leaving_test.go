package server

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestClientsLeave cuts the connections of every sort of request at random
// moments. Afterwards nothing of them is left, and the server answers.
func TestClientsLeave(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	c := start(t)
	withNode(t, c)
	for n := range 100 {
		if _, err := c.client.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(fmt.Sprint("m", n), "x", strings.Repeat("x", 10000)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const maps, one = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods/one"
	socket := map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
	}
	spdy := map[string]string{"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"}
	requests := []struct {
		method, path, body string
		headers            map[string]string
	}{
		{"POST", maps, `{"metadata":{"generateName":"new-"}}`, nil},
		{"PUT", maps + "/m1", `{"metadata":{"name":"m1"}}`, nil},
		{"PATCH", maps + "/m2", `{"data":{"y":"z"}}`, map[string]string{"Content-Type": "application/merge-patch+json"}},
		{"PATCH", maps + "/m3?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","data":{"y":"z"}}`, map[string]string{"Content-Type": "application/apply-patch+yaml"}},
		{"DELETE", maps + "?labelSelector=none", "", nil},
		{"GET", maps, "", nil},
		{"GET", maps, "", map[string]string{"Accept": typeProtobuf}},
		{"GET", maps, "", map[string]string{"Accept-Encoding": "gzip"}},
		{"GET", maps + "?watch=true&resourceVersion=0", "", nil},
		{"GET", maps + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "", socket},
		{"GET", one + "/log?follow=true", "", nil},
		{"GET", one + "/log", "", socket},
		{"POST", one + "/exec?command=x&stdin=true&stdout=true", "", spdy},
		{"GET", one + "/exec?command=x&stdin=true&stdout=true", "", socket},
		{"POST", one + "/portforward", "", map[string]string{"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "portforward.k8s.io"}},
		{"GET", "/api/v1/nodes/n1/proxy/healthz", "", nil},
	}
	before := runtime.NumGoroutine()
	var leaving sync.WaitGroup
	for n := range 4 {
		random := rand.New(rand.NewPCG(seed, uint64(n)))
		leaving.Go(func() {
			for range 60 {
				r := requests[random.IntN(len(requests))]
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(15000))*time.Microsecond)
				body := io.Reader(strings.NewReader(r.body))
				if r.body != "" && random.IntN(3) == 0 {
					body = io.MultiReader(body, &never{ctx.Done()}) // it never sends the rest
				}
				req, err := http.NewRequestWithContext(ctx, r.method, c.url+r.path, body)
				if err != nil {
					t.Error(err)
				}
				req.Header.Set("Authorization", "Bearer admin")
				req.Header.Set("Content-Type", typeJSON)
				for k, v := range r.headers {
					req.Header.Set(k, v)
				}
				transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
				if reply, err := transport.RoundTrip(req); err == nil {
					// What has been upgraded is no longer bound to the context.
					context.AfterFunc(ctx, func() { reply.Body.Close() })
					_, _ = io.CopyN(io.Discard, reply.Body, random.Int64N(100_000)) // as much as comes until the cut
					reply.Body.Close()
				}
				cancel()
			}
		})
	}
	leaving.Wait()
	const kept = 10 // idle connections to the agent, which are used again
	c.await(fmt.Sprintf("nothing is left of the requests (seed %d)", seed), func() bool { return runtime.NumGoroutine() <= before+kept })
	for _, r := range requests[:8] {
		if code, body := c.do(r.method, r.path, r.body, r.headers); code >= 400 {
			t.Errorf("%s %s afterwards: %d %.200s", r.method, r.path, code, body)
		}
	}
}

// never is the rest of a body that does not come.
type never struct{ done <-chan struct{} }

func (n *never) Read([]byte) (int, error) {
	<-n.done
	return 0, io.ErrUnexpectedEOF
}
