package nodeagent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// route is one path of the agent's HTTP API. what is the node subresource that
// a caller needs access to; finer ones fall back to "proxy".
type route struct {
	pattern, what string
	serve         http.HandlerFunc
}

// routes lists all paths of the HTTP API.
func (a *Agent) routes() []route {
	routes := []route{
		{"GET /healthz", "healthz", a.serveHealth},
		{"GET /healthz/{check}", "healthz", a.serveHealth},
		{"GET /pods", "pods", a.servePods},
		{"GET /pods/{$}", "pods", a.servePods},
		{"GET /runningpods/", "pods", a.serveRunningPods},
		{"GET /configz", "configz", a.serveConfig},
		{"GET /containerLogs/{namespace}/{pod}/{container}", "proxy", a.serveLogs},
		{"/exec/{namespace}/{pod}/{container}", "proxy", a.serveExec},
		{"/exec/{namespace}/{pod}/{uid}/{container}", "proxy", a.serveExec},
		{"/attach/{namespace}/{pod}/{container}", "proxy", a.serveAttach},
		{"/attach/{namespace}/{pod}/{uid}/{container}", "proxy", a.serveAttach},
		{"/portForward/{namespace}/{pod}", "proxy", a.servePortForward},
		{"/portForward/{namespace}/{pod}/{uid}", "proxy", a.servePortForward},
		{"POST /run/{namespace}/{pod}/{container}", "proxy", a.serveRun},
		{"GET /stats/summary", "stats", a.serveSummary},
		{"GET /metrics", "metrics", a.serveMetrics},
		{"GET /metrics/resource", "metrics", a.serveResourceMetrics},
		{"GET /metrics/cadvisor", "metrics", a.serveContainerMetrics},
		{"GET /metrics/probes", "metrics", a.serveNothing},
		{"GET /logs/", "log", a.serveSystemLogs},
		{"GET /checkpoint/", "checkpoint", http.NotFound},
	}
	for path, page := range a.cfg.Pages {
		routes = append(routes, route{"GET " + path, strings.Trim(path, "/"), page.ServeHTTP})
	}
	return routes
}

// Paths are those of the HTTP API, of whatever agent.
func Paths() []string {
	var paths []string
	for _, r := range (&Agent{}).routes() {
		_, path, _ := strings.Cut(r.pattern, "/")
		paths = append(paths, "/"+path)
	}
	return append(paths, "/flagz", "/statusz")
}

// newHandler makes the handler of the HTTP API.
func (a *Agent) newHandler() http.Handler {
	mux := http.NewServeMux()
	access := &access{a: a, tokens: map[string]cachedIdentity{}, allowed: map[string]time.Time{}}
	for _, r := range a.routes() {
		mux.Handle(r.pattern, access.guard(r))
	}
	return mux
}

// serve runs the HTTP API until ctx ends.
func (a *Agent) serve(ctx context.Context) error {
	certs, err := serverTLS(a.cfg.Kubelet)
	if err != nil {
		return err
	}
	address := net.JoinHostPort(a.cfg.Kubelet.Address, strconv.Itoa(int(a.cfg.Kubelet.Port)))
	return serveUntil(ctx, address, a.handler(), certs)
}

// serveHealthz answers local health checks without TLS.
func (a *Agent) serveHealthz(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", a.serveHealth)
	mux.HandleFunc("/healthz/", a.serveHealth)
	address := net.JoinHostPort(a.cfg.Kubelet.HealthzBindAddress, strconv.Itoa(int(*a.cfg.Kubelet.HealthzPort)))
	return serveUntil(ctx, address, mux, nil)
}

// serveUntil serves at an address until ctx ends.
func serveUntil(ctx context.Context, address string, h http.Handler, certs *tls.Config) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return serveOn(ctx, listener, h, certs)
}

// serveOn serves until ctx ends; streams then get a moment to end.
func serveOn(ctx context.Context, listener net.Listener, h http.Handler, certs *tls.Config) error {
	if certs != nil {
		listener = tls.NewListener(listener, certs)
	}
	base, cancel := context.WithCancel(context.Background())
	defer cancel()
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 30 * time.Second, BaseContext: func(net.Listener) context.Context { return base }}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		cancel()
		grace, done := context.WithTimeout(context.Background(), 2*time.Second)
		defer done()
		if srv.Shutdown(grace) != nil {
			srv.Close()
		}
	})
	err := srv.Serve(listener)
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// serverTLS reads certificate, key and client CA anew when their files change,
// so that renewed ones need no restart.
func serverTLS(k kubeletconfig.KubeletConfiguration) (*tls.Config, error) {
	if k.TLSCertFile == "" || k.TLSPrivateKeyFile == "" {
		return nil, errors.New("tlsCertFile and tlsPrivateKeyFile are needed for the node agent's server")
	}
	var mu sync.Mutex // protects the two below
	var read time.Time
	var current *tls.Config
	load := func() (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		changed := read.IsZero()
		for _, f := range []string{k.TLSCertFile, k.TLSPrivateKeyFile, k.Authentication.X509.ClientCAFile} {
			if info, err := os.Stat(f); err == nil && info.ModTime().After(read) {
				changed = true
			}
		}
		if !changed {
			return current, nil
		}
		at := time.Now()
		cert, err := tls.LoadX509KeyPair(k.TLSCertFile, k.TLSPrivateKeyFile)
		if err != nil {
			if current != nil {
				return current, nil // half-written: the next handshake tries again
			}
			return nil, fmt.Errorf("server certificate: %w", err)
		}
		c := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert, NextProtos: []string{"http/1.1"}}
		if f := k.Authentication.X509.ClientCAFile; f != "" {
			pem, err := os.ReadFile(f)
			if err != nil {
				return nil, fmt.Errorf("client CA: %w", err)
			}
			c.ClientCAs = x509.NewCertPool()
			c.ClientCAs.AppendCertsFromPEM(pem)
			c.ClientAuth = tls.VerifyClientCertIfGiven
		}
		current, read = c, at
		return c, nil
	}
	first, err := load()
	if err != nil {
		return nil, err
	}
	out := first.Clone()
	out.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return load() }
	return out, nil
}

// serveHealth says whether the runtime answers.
func (a *Agent) serveHealth(w http.ResponseWriter, _ *http.Request) {
	if reason := a.runtimeErr.Load(); reason != nil {
		http.Error(w, "container runtime: "+*reason, http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, "ok")
}

func (a *Agent) servePods(w http.ResponseWriter, _ *http.Request) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{}}
	for _, pod := range a.pods.listed() {
		list.Items = append(list.Items, *pod)
	}
	writeJSON(w, list)
}

// serveRunningPods lists what the runtime runs, whoever wants it.
func (a *Agent) serveRunningPods(w http.ResponseWriter, r *http.Request) {
	pods, err := a.runtimePods(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{}}
	for _, pod := range pods {
		list.Items = append(list.Items, *pod)
	}
	writeJSON(w, list)
}

func (a *Agent) serveConfig(w http.ResponseWriter, _ *http.Request) {
	k := a.cfg.Kubelet
	k.Kind, k.APIVersion = "", ""
	writeJSON(w, map[string]any{"kubeletconfig": k})
}

func (a *Agent) serveNothing(http.ResponseWriter, *http.Request) {}

// serveSystemLogs serves /var/log, as upstream does. A simulated node has none.
func (a *Agent) serveSystemLogs(w http.ResponseWriter, r *http.Request) {
	if a.cfg.Simulated {
		http.NotFound(w, r)
		return
	}
	http.StripPrefix("/logs/", http.FileServer(http.Dir("/var/log/"))).ServeHTTP(w, r)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// podOf finds the pod and the container's id that a request is about.
func (a *Agent) podOf(r *http.Request) (*corev1.Pod, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	worker := a.pods.byName(namespace, name)
	if worker == nil {
		return nil, fmt.Errorf("pod %q not found", name+"_"+namespace)
	}
	if uid := r.PathValue("uid"); uid != "" && uid != string(worker.uid) {
		// A mirror pod's UID is the API's; the static pod has its own.
		if m := a.pods.mirror(worker.name); m == nil || string(m.UID) != uid {
			return nil, fmt.Errorf("pod %q with uid %s not found", name+"_"+namespace, uid)
		}
	}
	return worker.wanted(), nil
}

// containerOf finds a container's id; previous is the attempt that its status
// has as the last state.
func (a *Agent) containerOf(ctx context.Context, pod *corev1.Pod, name string, previous bool) (containerStatus, error) {
	if containerNamed(pod, name) == nil {
		return containerStatus{}, fmt.Errorf("container %q not found in pod %q", name, pod.Name)
	}
	h, err := a.observe(ctx, pod.UID, map[string]containerStatus{})
	if err != nil {
		return containerStatus{}, err
	}
	all := h.containers[name]
	told := a.toldOf(pod.UID, name)
	if previous {
		for i, c := range all {
			if last := told.LastTerminationState.Terminated; i > 0 && last == nil || last != nil && last.ContainerID == a.containerID(c.id) {
				return c, nil
			}
		}
		return containerStatus{}, fmt.Errorf("previous terminated container %q in pod %q not found", name, pod.Name)
	}
	if len(all) == 0 {
		return containerStatus{}, fmt.Errorf("container %q in pod %q is waiting to start: %s", name, pod.Name, whyWaiting(told))
	}
	return all[0], nil
}

// toldOf is the status of a container as it was last told.
func (a *Agent) toldOf(uid types.UID, name string) corev1.ContainerStatus {
	if st := a.statuses.latest(uid); st != nil {
		for _, list := range [][]corev1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses, st.EphemeralContainerStatuses} {
			for _, s := range list {
				if s.Name == name {
					return s
				}
			}
		}
	}
	return corev1.ContainerStatus{}
}

// whyWaiting says in the words that clients know why there is no log yet.
func whyWaiting(s corev1.ContainerStatus) string {
	if s.State.Waiting == nil {
		return "ContainerCreating"
	}
	switch s.State.Waiting.Reason {
	case reasonPull:
		return "image can't be pulled"
	case reasonPullBackOff:
		return "trying and failing to pull image"
	}
	return s.State.Waiting.Reason
}
