package web

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"slices"
	"time"
)

// lastWords is how long a connection may take to say goodbye.
const lastWords = time.Second

// guard is how an answer of the API reaches a page: whatever it is, and whoever
// wrote it, it is data there, and sets no cookie. A connection that the API makes
// its own ends with the request.
type guard struct {
	http.ResponseWriter
	ctx     context.Context
	cookies []string // ours
	begun   bool
}

func newGuard(ctx context.Context, w http.ResponseWriter) *guard {
	return &guard{ResponseWriter: w, ctx: ctx, cookies: slices.Clone(w.Header()["Set-Cookie"])}
}

func (g *guard) WriteHeader(status int) {
	if !g.begun {
		h := g.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		for _, name := range []string{"Set-Cookie", "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Clear-Site-Data", "Service-Worker-Allowed"} {
			h.Del(name)
		}
		if len(g.cookies) > 0 {
			h["Set-Cookie"] = g.cookies
		}
	}
	g.begun = g.begun || status >= http.StatusOK
	g.ResponseWriter.WriteHeader(status)
}

func (g *guard) Write(p []byte) (int, error) {
	if !g.begun {
		g.WriteHeader(http.StatusOK)
	}
	return g.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (g *guard) Flush() {
	if !g.begun {
		g.WriteHeader(http.StatusOK)
	}
	_ = http.NewResponseController(g.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker.
func (g *guard) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(g.ResponseWriter).Hijack()
	if err == nil {
		context.AfterFunc(g.ctx, func() { time.AfterFunc(lastWords, func() { _ = conn.Close() }) })
	}
	return conn, buffered, err
}
