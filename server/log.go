package server

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// log serves GET on pods/{name}/log: the agent of the pod's node reads the
// container's log, and it is passed on as it comes.
func (c *call) log() error {
	ctx := c.r.Context()
	options, err := logOptions(c.r.URL.Query())
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	checked := "enforce_tls"
	if options.InsecureSkipTLSVerifyBackend {
		checked = "skip_tls_allowed"
	}
	c.s.metrics.logs.WithLabelValues(checked).Inc()
	if errs := checkLogOptions(options); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "PodLogOptions"}, c.Name, errs)
	}
	pod, err := c.pod(ctx)
	if err != nil {
		return err
	}
	container, err := containerOf(pod, options.Container)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName == "" {
		c.w.WriteHeader(http.StatusNoContent) // nothing has been logged yet
		return nil
	}
	location, err := c.s.agentOf(ctx, pod)
	if err != nil {
		return err
	}
	location.Path = fmt.Sprintf("/containerLogs/%s/%s/%s", pod.Namespace, pod.Name, container)
	location.RawQuery = logQuery(options).Encode()
	return c.passLog(location, options)
}

// passLog copies the agent's reply, line by line if it is followed.
func (c *call) passLog(location *url.URL, o *corev1.PodLogOptions) error {
	req, err := http.NewRequestWithContext(c.r.Context(), http.MethodGet, location.String(), nil)
	if err != nil {
		return err
	}
	via := c.s.kubelet.transport
	if o.InsecureSkipTLSVerifyBackend {
		via = c.s.kubelet.unverified()
		defer via.CloseIdleConnections()
	}
	reply, err := via.RoundTrip(req)
	if unverified := (*tls.CertificateVerificationError)(nil); errors.As(err, &unverified) {
		c.s.metrics.distrusted.Inc()
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("Get %q: %w", location, err))
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return backendError(reply, c.Name)
	}
	if websocket.IsWebSocketUpgrade(c.r) {
		return c.logSocket(reply.Body)
	}
	c.w.Header().Set("Content-Type", "text/plain")
	c.w.WriteHeader(http.StatusOK)
	if !o.Follow {
		io.Copy(c.w, reply.Body) // a broken connection cannot be told any more
		return nil
	}
	flusher := http.NewResponseController(c.w)
	if err := flusher.Flush(); err != nil {
		return nil
	}
	buf := make([]byte, 32*1024)
	for {
		n, readErr := reply.Body.Read(buf)
		if n > 0 {
			if _, err := c.w.Write(buf[:n]); err != nil {
				return nil
			}
			flusher.Flush()
		}
		if readErr != nil {
			return nil
		}
	}
}

// base64Log is the subprotocol in which a log goes as text; in binary.k8s.io, and
// in none, it goes as it is.
const base64Log = "base64.binary.k8s.io"

// logSocket sends a log as messages of a websocket, which is closed at its end.
// What the client sends is read and dropped, to notice when it leaves.
func (c *call) logSocket(log io.ReadCloser) error {
	upgrader := websocket.Upgrader{Subprotocols: []string{"binary.k8s.io", base64Log}, CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := upgrader.Upgrade(c.w, c.r, nil)
	if err != nil {
		return nil // the upgrader has answered
	}
	left := make(chan struct{})
	go func() { // ends when conn is closed, which is waited for below
		defer close(left)
		defer log.Close() // ends the reading of a log that nobody follows any more
		for {
			if _, _, err := conn.NextReader(); err != nil {
				return
			}
		}
	}()
	sendLog(conn, log)
	bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = conn.WriteControl(websocket.CloseMessage, bye, time.Now().Add(time.Second)) // a courtesy
	conn.Close()
	<-left
	return nil
}

// sendLog copies until the log or the connection ends; neither can be told to
// the client any more.
func sendLog(conn *websocket.Conn, log io.Reader) {
	buf := make([]byte, 32*1024)
	for {
		n, readErr := log.Read(buf)
		if n > 0 {
			kind, message := websocket.BinaryMessage, buf[:n]
			if conn.Subprotocol() == base64Log {
				kind, message = websocket.TextMessage, base64.StdEncoding.AppendEncode(nil, message)
			}
			if conn.WriteMessage(kind, message) != nil {
				return
			}
		}
		if readErr != nil {
			return
		}
	}
}

// backendError turns an agent's refusal into a Status.
func backendError(reply *http.Response, name string) error {
	text, _ := io.ReadAll(io.LimitReader(reply.Body, 2048)) // what can be read of it
	message := strings.TrimSpace(string(text))
	switch reply.StatusCode {
	case http.StatusBadRequest:
		return apierrors.NewBadRequest(message)
	case http.StatusInternalServerError:
		return apierrors.NewInternalError(errors.New(message))
	}
	return apierrors.NewGenericServerResponse(reply.StatusCode, http.MethodGet, schema.GroupResource{Resource: "pods/log"}, name, message, 0, true)
}

// unverified is the transport for clients that ask not to check the agent's
// certificate.
func (k *kubelet) unverified() *http.Transport {
	t := k.transport.Clone()
	t.TLSClientConfig.InsecureSkipVerify = true
	return t
}

func logOptions(q url.Values) (*corev1.PodLogOptions, error) {
	o := &corev1.PodLogOptions{
		Container: q.Get("container"), Follow: isTrue(q["follow"]), Previous: isTrue(q["previous"]), Timestamps: isTrue(q["timestamps"]),
		InsecureSkipTLSVerifyBackend: isTrue(q["insecureSkipTLSVerifyBackend"]),
	}
	for name, into := range map[string]**int64{"sinceSeconds": &o.SinceSeconds, "tailLines": &o.TailLines, "limitBytes": &o.LimitBytes} {
		text := q.Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}
		*into = &n
	}
	if text := q.Get("sinceTime"); text != "" {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, err
		}
		o.SinceTime = &metav1.Time{Time: t}
	}
	if text, ok := q["stream"]; ok {
		o.Stream = &text[0]
	}
	return o, nil
}

func checkLogOptions(o *corev1.PodLogOptions) (errs field.ErrorList) {
	if o.TailLines != nil && *o.TailLines < 0 {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *o.TailLines, "must be greater than or equal to 0"))
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		errs = append(errs, field.Invalid(field.NewPath("limitBytes"), *o.LimitBytes, "must be greater than 0"))
	}
	switch {
	case o.SinceSeconds != nil && o.SinceTime != nil:
		errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case o.SinceSeconds != nil && *o.SinceSeconds < 1:
		errs = append(errs, field.Invalid(field.NewPath("sinceSeconds"), *o.SinceSeconds, "must be greater than 0"))
	}
	if o.Stream != nil { // a feature that is off
		errs = append(errs, field.Forbidden(field.NewPath("stream"), "may not be specified"))
	}
	return errs
}

func logQuery(o *corev1.PodLogOptions) url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if on {
			q.Set(name, "true")
		}
	}
	for name, n := range map[string]*int64{"sinceSeconds": o.SinceSeconds, "tailLines": o.TailLines, "limitBytes": o.LimitBytes} {
		if n != nil {
			q.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	if o.SinceTime != nil {
		q.Set("sinceTime", o.SinceTime.Format(time.RFC3339))
	}
	return q
}
