package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"orrery.dev/api"
	"orrery.dev/edit"
	"orrery.dev/server/stream"
	"orrery.dev/why"
)

const (
	// reachEvery is how often it is looked whether the API server is there, while
	// somebody looks at it; reachWithin is how long its answer may take.
	reachEvery  = 2 * time.Second
	reachWithin = 5 * time.Second
)

// Server does for the faces what the API server of the cluster does not.
type Server struct {
	config     *rest.Config
	home       string
	log        *slog.Logger
	source     *Source
	hub        *stream.Hub
	why, proxy http.Handler
	others     remembered[string, *Server] // as whom we are asked to act
	asked      remembered[string, api.Usage]
}

// New makes a Server that acts with cfg's rights; home is its namespace.
func New(cfg *rest.Config, home string, log *slog.Logger) (*Server, error) {
	source, err := NewSource(cfg, home)
	if err != nil {
		return nil, err
	}
	proxy, err := newProxy(cfg, log)
	if err != nil {
		return nil, err
	}
	s := &Server{config: cfg, home: home, log: log, source: source, proxy: proxy}
	s.why = why.Handler(func(r *http.Request) why.Reader { return source.reads(r.Context()) })
	s.hub = stream.New(stream.Config{Source: source, Authorizer: source, Log: log, User: func(r *http.Request) user.Info {
		if us, err := s.User(r.Context()); err == nil {
			return us
		}
		return &user.DefaultInfo{Name: "you"} // only refusals name who asked
	}})
	return s, nil
}

// User asks the server who we are.
func (s *Server) User(ctx context.Context) (user.Info, error) { return s.source.user(ctx) }

func (s *Source) user(ctx context.Context) (user.Info, error) {
	answer, err := s.clients.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("who am I: %w", err)
	}
	return &user.DefaultInfo{Name: answer.Status.UserInfo.Username, Groups: answer.Status.UserInfo.Groups}, nil
}

// as is the Server that acts as whom the request wants to be taken for: what goes on
// to the API server says so itself, but not what is asked of it here.
func (s *Server) as(r *http.Request) (*Server, error) {
	who := rest.ImpersonationConfig{UserName: r.Header.Get(transport.ImpersonateUserHeader), Groups: r.Header.Values(transport.ImpersonateGroupHeader)}
	if who.UserName == "" || !strings.HasPrefix(r.URL.Path, api.OwnPrefix) {
		return s, nil
	}
	return s.others.get(fmt.Sprintf("%q", append(who.Groups, who.UserName)), func() (*Server, error) {
		cfg := rest.CopyConfig(s.config)
		cfg.Impersonate = who
		return New(cfg, s.home, s.log)
	})
}

// ServeHTTP answers what orrery's API server would, and hands on the rest.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s, err := s.as(r)
	if err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	switch {
	case r.URL.Path == api.StreamPath:
		s.Rows(w, r)
	case r.URL.Path == api.NamespacesPath:
		s.namespaces(w, r)
	case slices.Contains([]string{api.WhyPath, api.BlastPath, api.RightsPath}, r.URL.Path):
		s.why.ServeHTTP(w, r)
	case r.URL.Path == api.MergePath:
		edit.Handler().ServeHTTP(w, r)
	case r.URL.Path == api.UsagePath:
		s.usage(w, r)
	case strings.HasPrefix(r.URL.Path, api.OwnPrefix):
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the API server of this cluster is not orrery's, and can't tell this")
	default:
		s.proxy.ServeHTTP(w, r)
	}
}

// Rows serves the row protocol for as long as the API server can be reached: to be
// cut off from it is to a face what a broken connection is.
func (s *Server) Rows(w http.ResponseWriter, r *http.Request) {
	if err := s.reach(r.Context()); err != nil {
		fail(w, http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, "the API server can't be reached: "+err.Error())
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go s.watchReach(ctx, cancel) // ends with ctx
	s.hub.ServeHTTP(w, r.WithContext(ctx))
}

func (s *Server) watchReach(ctx context.Context, cancel func()) {
	tick := time.NewTicker(reachEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if s.reach(ctx) != nil {
				cancel()
				return
			}
		}
	}
}

func (s *Server) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if err := s.source.plain.Get().AbsPath("/version").Do(ctx).Error(); away(err) {
		return err
	}
	return nil
}

func (s *Server) namespaces(w http.ResponseWriter, r *http.Request) {
	names, err := s.source.Namespaces(r.Context())
	if err != nil {
		fail(w, http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(api.Namespaces{Names: names})
}

// newProxy hands requests to the API server as ours. A connection that is to become
// something else (exec) needs HTTP/1.1.
func newProxy(cfg *rest.Config, log *slog.Logger) (http.Handler, error) {
	target, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("server address: %w", err)
	}
	own := rest.CopyConfig(cfg)
	own.ContentType, own.AcceptContentTypes = "", ""
	usual, err := rest.TransportFor(own)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	own.NextProtos = []string{"http/1.1"}
	upgrades, err := rest.TransportFor(own)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	return &httputil.ReverseProxy{
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Upgrade") != "" {
				return upgrades.RoundTrip(r)
			}
			return usual.RoundTrip(r)
		}),
		FlushInterval: -1, // logs and watches are read as they come
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			for _, private := range []string{"Authorization", "Cookie", "Origin", "Referer"} {
				p.Out.Header.Del(private)
			}
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			fail(w, http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, "the API server can't be reached: "+err.Error())
		},
	}, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Message: message, Reason: reason, Code: int32(code),
	})
}
