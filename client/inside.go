package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"orrery.dev/api"
)

// dialInside opens a websocket to a handler of this process, by a pipe that nobody
// else can reach, as somebody. The handler's request ends with ctx; work waits for it.
func dialInside(ctx context.Context, h http.Handler, as rest.ImpersonationConfig, work *sync.WaitGroup) (*websocket.Conn, error) {
	near, far := net.Pipe()
	handling := make(chan struct{})
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(handling)
			h.ServeHTTP(w, r)
		}),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	work.Go(func() { _ = server.Serve(&onePipe{conn: far}) })
	header := http.Header{}
	if as.UserName != "" {
		header[transport.ImpersonateUserHeader], header[transport.ImpersonateGroupHeader] = []string{as.UserName}, as.Groups
	}
	dialer := websocket.Dialer{Subprotocols: []string{api.StreamProtocol},
		NetDialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
	socket, answer, err := dialer.DialContext(ctx, (&url.URL{Scheme: "ws", Host: "inside", Path: api.StreamPath}).String(), header)
	if err == nil {
		work.Go(func() { <-handling })
		return socket, nil
	}
	_ = near.Close()
	if errors.Is(err, websocket.ErrBadHandshake) {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return nil, err
}

// onePipe listens for one connection, which is there.
type onePipe struct{ conn net.Conn }

func (l *onePipe) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (l *onePipe) Close() error   { return nil }
func (l *onePipe) Addr() net.Addr { return &net.UnixAddr{Name: "inside", Net: "pipe"} }

// Inside lets a client ask a handler of this process.
type Inside struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (i Inside) RoundTrip(r *http.Request) (*http.Response, error) {
	a := &insideAnswer{code: http.StatusOK, header: http.Header{}}
	asked := r
	if r.Body == nil { // as a client may leave it, but no server
		asked = r.Clone(r.Context())
		asked.Body = http.NoBody
	}
	i.ServeHTTP(a, asked)
	return &http.Response{StatusCode: a.code, Header: a.header, Body: io.NopCloser(&a.body), Request: r}, nil
}

type insideAnswer struct {
	code   int
	header http.Header
	body   bytes.Buffer
}

func (a *insideAnswer) Header() http.Header         { return a.header }
func (a *insideAnswer) WriteHeader(code int)        { a.code = code }
func (a *insideAnswer) Write(p []byte) (int, error) { return a.body.Write(p) }
