package nodeagent

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	"k8s.io/apimachinery/pkg/util/proxy"
	streams "k8s.io/apiserver/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crilogs "k8s.io/cri-client/pkg/logs"
	"k8s.io/utils/ptr"
)

// serveExec runs a command in a container, over an upgraded connection. The
// runtime serves the stream; we connect the two.
func (a *Agent) serveExec(w http.ResponseWriter, r *http.Request) {
	c, ok := a.streamTarget(w, r)
	if !ok {
		return
	}
	q := r.URL.Query()
	resp, err := a.cfg.Runtime.Exec(r.Context(), &runtimeapi.ExecRequest{
		ContainerId: c.id, Cmd: q["command"], Tty: on(q, "tty"),
		Stdin: on(q, "input"), Stdout: on(q, "output"), Stderr: on(q, "error") && !on(q, "tty"),
	})
	a.connect(w, r, resp.GetUrl(), err)
}

// serveAttach connects to a running container's streams.
func (a *Agent) serveAttach(w http.ResponseWriter, r *http.Request) {
	c, ok := a.streamTarget(w, r)
	if !ok {
		return
	}
	q := r.URL.Query()
	resp, err := a.cfg.Runtime.Attach(r.Context(), &runtimeapi.AttachRequest{
		ContainerId: c.id, Tty: on(q, "tty"),
		Stdin: on(q, "input"), Stdout: on(q, "output"), Stderr: on(q, "error") && !on(q, "tty"),
	})
	a.connect(w, r, resp.GetUrl(), err)
}

// servePortForward connects to ports of a pod.
func (a *Agent) servePortForward(w http.ResponseWriter, r *http.Request) {
	pod, err := a.podOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	h, err := a.observe(r.Context(), pod.UID, map[string]containerStatus{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	sb, ok := h.sandbox()
	if !ok || !sb.ready {
		http.Error(w, fmt.Sprintf("pod %q is not running", pod.Name), http.StatusInternalServerError)
		return
	}
	req := &runtimeapi.PortForwardRequest{PodSandboxId: sb.id}
	for _, text := range strings.Split(strings.Join(r.URL.Query()["port"], ","), ",") {
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			req.Port = append(req.Port, int32(n))
		}
	}
	resp, err := a.cfg.Runtime.PortForward(r.Context(), req)
	a.connect(w, r, resp.GetUrl(), err)
}

// serveRun runs a command and answers with its output.
func (a *Agent) serveRun(w http.ResponseWriter, r *http.Request) {
	c, ok := a.streamTarget(w, r)
	if !ok {
		return
	}
	command := strings.Fields(r.URL.Query().Get("cmd"))
	stdout, stderr, err := a.cfg.Runtime.ExecSync(r.Context(), c.id, command, 0)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		stderr = append(stderr, err.Error()...)
	}
	w.Write(append(stdout, stderr...))
}

// streamTarget finds the container of a request, which has to run.
func (a *Agent) streamTarget(w http.ResponseWriter, r *http.Request) (containerStatus, bool) {
	pod, err := a.podOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return containerStatus{}, false
	}
	name := r.PathValue("container")
	c, err := a.containerOf(r.Context(), pod, name, false)
	if err == nil && c.state != stateRunning {
		err = fmt.Errorf("container not found (%q)", name)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return containerStatus{}, false
	}
	return c, true
}

func on(q url.Values, name string) bool {
	v := q.Get(name)
	return v == "1" || v == "true"
}

// connect joins the caller's connection with the runtime's streaming server,
// which speaks SPDY and the older forms of websocket. The form that kubectl
// prefers is turned into SPDY here: for commands stream by stream, for port
// forwarding as a tunnel. failed is why the runtime would not serve.
func (a *Agent) connect(w http.ResponseWriter, r *http.Request, to string, failed error) {
	if failed != nil {
		http.Error(w, grpcText(failed), http.StatusInternalServerError)
		return
	}
	u, err := url.Parse(to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := proxy.NewUpgradeAwareHandler(u, nil, false, false, proxyErrors{})
	h.UpgradeRequired = true
	switch {
	case wsstream.IsWebSocketRequestWithStreamCloseProtocol(r):
		q := r.URL.Query()
		streams.NewStreamTranslatorHandler(u, nil, 0, streams.Options{
			Stdin: on(q, "input"), Stdout: on(q, "output"), Stderr: on(q, "error") && !on(q, "tty"), Tty: on(q, "tty"),
		}).ServeHTTP(w, r)
	case wsstream.IsWebSocketRequestWithTunnelingProtocol(r):
		streams.NewTunnelingHandler(h).ServeHTTP(w, r)
	default:
		h.ServeHTTP(w, r)
	}
}

type proxyErrors struct{}

func (proxyErrors) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// serveLogs serves a container's log from its file.
func (a *Agent) serveLogs(w http.ResponseWriter, r *http.Request) {
	pod, err := a.podOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	opts, err := logOptions(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	c, err := a.containerOf(r.Context(), pod, r.PathValue("container"), opts.Previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	flusher := http.NewResponseController(w)
	out := writerFunc(func(p []byte) (int, error) {
		n, err := w.Write(p)
		if err == nil {
			err = flusher.Flush()
		}
		return n, err
	})
	stdout, stderr := out, out
	discard := writerFunc(func(p []byte) (int, error) { return len(p), nil })
	if opts.Stream != nil && *opts.Stream == corev1.LogStreamStdout {
		stderr = discard
	} else if opts.Stream != nil && *opts.Stream == corev1.LogStreamStderr {
		stdout = discard
	}
	w.Header().Set("Content-Type", "text/plain")
	if !opts.Follow && c.state == stateRunning {
		awaitFirstLine(r.Context(), c.logPath, c.started.Add(firstLine))
	}
	err = a.readLog(r.Context(), c, readOptions(opts), stdout, stderr)
	if err != nil && r.Context().Err() == nil {
		fmt.Fprintf(w, "failed to read the log of container %q: %v\n", r.PathValue("container"), err)
	}
}

// firstLine is how long after its start a container may take for its first line
// before its log counts as empty. It is told to run in the moment that it does,
// and who asks for its log then would often come too early.
const firstLine = 2 * time.Second

// awaitFirstLine waits until there is something in a log, but not past end.
func awaitFirstLine(ctx context.Context, path string, end time.Time) {
	for path != "" && time.Now().Before(end) && ctx.Err() == nil {
		if info, err := os.Stat(path); err != nil || info.Size() > 0 {
			return
		}
		sleep(ctx, 20*time.Millisecond)
	}
}

// logKeeper is a runtime that keeps its containers' logs, but not in files.
type logKeeper interface {
	ReadLog(ctx context.Context, id string, opts *crilogs.LogOptions, stdout, stderr io.Writer) error
}

// readLog writes a container's log, from wherever it is.
func (a *Agent) readLog(ctx context.Context, c containerStatus, opts *crilogs.LogOptions, stdout, stderr io.Writer) error {
	if keeper, ok := a.cfg.Runtime.(logKeeper); ok {
		return keeper.ReadLog(ctx, c.id, opts, stdout, stderr)
	}
	if c.logPath == "" {
		return nil
	}
	if opts.Follow {
		return followLog(ctx, c.logPath, func(ctx context.Context) bool { return a.runs(ctx, c.id) }, opts, stdout, stderr)
	}
	return crilogs.ReadLogs(ctx, c.logPath, c.id, opts, a.cfg.Runtime, stdout, stderr)
}

// runs tells whether a container runs, which it does while the runtime can't be asked.
func (a *Agent) runs(ctx context.Context, id string) bool {
	got, err := a.cfg.Runtime.ContainerStatus(ctx, id, false)
	return status.Code(err) == codes.Unavailable || err == nil && got.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// readOptions turns the API's options into those of the reader.
func readOptions(o *corev1.PodLogOptions) *crilogs.LogOptions {
	out := &crilogs.LogOptions{TailLines: o.TailLines, LimitBytes: o.LimitBytes, Follow: o.Follow, Timestamp: o.Timestamps}
	if o.SinceSeconds != nil {
		now := time.Now() // of which no Duration could be taken that is long enough
		out.Since = time.Unix(now.Unix()-*o.SinceSeconds, int64(now.Nanosecond()))
	}
	if o.SinceTime != nil {
		out.Since = o.SinceTime.Time
	}
	return out
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func logOptions(q url.Values) (*corev1.PodLogOptions, error) {
	o := &corev1.PodLogOptions{Follow: isOn(q, "follow"), Previous: isOn(q, "previous"), Timestamps: isOn(q, "timestamps")}
	for name, field := range map[string]**int64{"tailLines": &o.TailLines, "limitBytes": &o.LimitBytes, "sinceSeconds": &o.SinceSeconds} {
		text := q.Get(name)
		if text == "" || name == "tailLines" && text == "all" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s: invalid value %q", name, text)
		}
		*field = ptr.To(n)
	}
	if text := q.Get("sinceTime"); text != "" {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, fmt.Errorf("sinceTime: %w", err)
		}
		o.SinceTime = ptr.To(metav1.NewTime(t))
	}
	if text := q.Get("stream"); text != "" {
		if !slices.Contains([]string{corev1.LogStreamAll, corev1.LogStreamStdout, corev1.LogStreamStderr}, text) {
			return nil, fmt.Errorf("stream: invalid value %q", text)
		}
		o.Stream = &text
	}
	return o, nil
}

func isOn(q url.Values, name string) bool {
	v, err := strconv.ParseBool(q.Get(name))
	return err == nil && v
}
