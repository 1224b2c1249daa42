package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
	criforward "k8s.io/cri-streaming/pkg/streaming/portforward"
	criexec "k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// echoRuntime runs no command: it says which, echoes its input, and fails.
type echoRuntime struct{}

func (echoRuntime) ExecInContainer(_ context.Context, _, _, container string, cmd []string, in io.Reader, out, errs io.WriteCloser, _ bool, _ <-chan criexec.TerminalSize, _ time.Duration) error {
	fmt.Fprintf(out, "%s: %s\n", container, strings.Join(cmd, " "))
	if in != nil {
		io.Copy(out, in)
	}
	if errs != nil {
		fmt.Fprint(errs, "no such command")
	}
	return utilexec.CodeExitError{Err: errors.New("it failed"), Code: 42}
}

func (echoRuntime) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	buf := make([]byte, 64)
	n, err := stream.Read(buf)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stream, "%d says %s", port, buf[:n])
	return err
}

// streamsWithin is how long the agent's library waits for streams that a client
// who left never opens.
const streamsWithin = 5 * time.Second

// fakeAgent is a node agent over the streaming library that runtimes use.
func fakeAgent(t *testing.T) (host string, port int32) {
	t.Helper()
	agent := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/containerLogs/default/one/main"):
			fmt.Fprintf(w, "log of %s?%s\n", r.URL.Path, r.URL.RawQuery)
		case strings.HasPrefix(r.URL.Path, "/exec/default/one/"):
			o, err := criexec.NewOptions(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			container := strings.TrimPrefix(r.URL.Path, "/exec/default/one/")
			criexec.ServeExec(w, r, echoRuntime{}, "one", "", container, r.URL.Query()["command"], o, time.Minute, streamsWithin, criexec.SupportedStreamingProtocols)
		case r.URL.Path == "/portForward/default/one":
			o, err := criforward.NewV4Options(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			criforward.ServePortForward(w, r, echoRuntime{}, "one", "", o, time.Minute, streamsWithin, criforward.SupportedProtocols)
		default:
			fmt.Fprintf(w, "agent %s", r.URL.Path)
		}
	}))
	t.Cleanup(agent.Close)
	h, p, err := net.SplitHostPort(agent.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(p)
	if err != nil {
		t.Fatal(err)
	}
	return h, int32(n)
}

// withNode makes a node whose agent is the fake one, and a pod on it.
func withNode(t *testing.T, c *cluster) {
	t.Helper()
	ctx := context.Background()
	host, port := fakeAgent(t)
	node, err := c.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = port
	if _, err := c.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods := c.client.CoreV1().Pods("default")
	if _, err := pods.Create(ctx, pod("one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Target: corev1.ObjectReference{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The server looks for agents in its cache, which knows the node after this.
	if _, err := c.client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestLogs(t *testing.T) {
	c := start(t)
	withNode(t, c)
	ctx := context.Background()
	tail := int64(5)
	text, err := c.client.CoreV1().Pods("default").GetLogs("one", &corev1.PodLogOptions{TailLines: &tail, Follow: true}).DoRaw(ctx)
	if err != nil || string(text) != "log of /containerLogs/default/one/main?follow=true&tailLines=5\n" {
		t.Errorf("%q %v", text, err)
	}
	for query, want := range map[string]string{
		"?container=nope":               `container nope is not valid for pod one`,
		"?tailLines=-1":                 `PodLogOptions "one" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0`,
		"?limitBytes=0":                 `PodLogOptions "one" is invalid: limitBytes: Invalid value: 0: must be greater than 0`,
		"?sinceSeconds=1&sinceTime=bad": `parsing time "bad" as "2006-01-02T15:04:05Z07:00": cannot parse "bad" as "2006"`,
	} {
		if _, body := c.do("GET", "/api/v1/namespaces/default/pods/one/log"+query, "", nil); status(t, body).Message != want {
			t.Errorf("%s: %s", query, body)
		}
	}
}

// TestLogSocket reads a log as browsers do.
func TestLogSocket(t *testing.T) {
	c := start(t)
	withNode(t, c)
	for protocol, want := range map[string]string{
		"":                     "log of /containerLogs/default/one/main?\n",
		"binary.k8s.io":        "log of /containerLogs/default/one/main?\n",
		"base64.binary.k8s.io": base64.StdEncoding.EncodeToString([]byte("log of /containerLogs/default/one/main?\n")),
	} {
		dialer := websocket.Dialer{}
		if protocol != "" {
			dialer.Subprotocols = []string{protocol}
		}
		header := http.Header{"Authorization": {"Bearer " + c.config.BearerToken}}
		conn, reply, err := dialer.Dial(strings.Replace(c.url, "http", "ws", 1)+"/api/v1/namespaces/default/pods/one/log", header)
		if err != nil {
			t.Fatalf("%q: %v %v", protocol, err, reply)
		}
		_, message, err := conn.ReadMessage()
		if err != nil || string(message) != want {
			t.Errorf("%q: %q %v", protocol, message, err)
		}
		if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			t.Errorf("%q: the end: %v", protocol, err)
		}
		conn.Close()
	}
}

// TestExec runs a command by each protocol: SPDY, websocket v5, and the older
// websocket that passes through.
func TestExec(t *testing.T) {
	c := start(t)
	withNode(t, c)
	target := c.client.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name("one").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"ls", "-l"}, Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	spdyExec, err := remotecommand.NewSPDYExecutor(c.config, "POST", target)
	if err != nil {
		t.Fatal(err)
	}
	socketExec, err := remotecommand.NewWebSocketExecutor(c.config, "GET", target.String())
	if err != nil {
		t.Fatal(err)
	}
	oldSocketExec, err := remotecommand.NewWebSocketExecutorForProtocols(c.config, "GET", target.String(), "v4.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]remotecommand.Executor{"spdy": spdyExec, "websocket v5": socketExec, "websocket v4": oldSocketExec} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			o := remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out, Stderr: &errs}
			want := "main: ls -l\nhello"
			if name == "websocket v4" { // knows no end of input
				o.Stdin, want = nil, "main: ls -l\n"
				target := strings.Replace(target.String(), "stdin=true", "stdin=false", 1)
				if run, err = remotecommand.NewWebSocketExecutorForProtocols(c.config, "GET", target, "v4.channel.k8s.io"); err != nil {
					t.Fatal(err)
				}
			}
			err := run.StreamWithContext(t.Context(), o)
			var exit utilexec.CodeExitError
			if !errors.As(err, &exit) || exit.Code != 42 {
				t.Errorf("exit: %v", err)
			}
			if out.String() != want || errs.String() != "no such command" {
				t.Errorf("stdout %q, stderr %q", out.String(), errs.String())
			}
		})
	}
	code, body := c.do("POST", "/api/v1/namespaces/default/pods/one/exec?command=ls", "", nil)
	if s := status(t, body); code != 400 || s.Message != "Upgrade request required" {
		t.Errorf("%d %s", code, body)
	}
}

// TestPortForward forwards by SPDY, and by SPDY in a websocket.
func TestPortForward(t *testing.T) {
	c := start(t)
	withNode(t, c)
	target := c.client.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name("one").SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		t.Fatal(err)
	}
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(target, c.config)
	if err != nil {
		t.Fatal(err)
	}
	for name, dialer := range map[string]httpstream.Dialer{
		"spdy": spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", target), "tunnel": tunnel,
	} {
		t.Run(name, func(t *testing.T) {
			stop, ready := make(chan struct{}), make(chan struct{})
			forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:80"}, stop, ready, io.Discard, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error)
			go func() { done <- forwarder.ForwardPorts() }()
			select {
			case <-ready:
			case err := <-done:
				t.Fatal(err)
			}
			ports, err := forwarder.GetPorts()
			if err != nil {
				t.Fatal(err)
			}
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(conn, "hello")
			if text, err := io.ReadAll(conn); err != nil || string(text) != "80 says hello" {
				t.Errorf("%q %v", text, err)
			}
			conn.Close()
			close(stop)
			<-done
		})
	}
}

func TestProxy(t *testing.T) {
	c := start(t)
	withNode(t, c)
	if code, body := c.do("GET", "/api/v1/nodes/n1/proxy/stats/summary", "", nil); code != 200 || body != "agent /stats/summary" {
		t.Errorf("node: %d %s", code, body)
	}
	for _, method := range []string{"OPTIONS", "PATCH", "DELETE"} {
		if code, body := c.do(method, "/api/v1/nodes/n1/proxy/any", "", nil); code != 200 || body != "agent /any" {
			t.Errorf("%s: %d %s", method, code, body)
		}
	}
	if code, _ := c.do("OPTIONS", "/api/v1/nodes/n1", "", nil); code != 405 {
		t.Errorf("OPTIONS of an object: %d", code)
	}
	reply := c.raw("GET", "/api/v1/nodes/n1/proxy", "", nil)
	reply.Body.Close()
	if reply.StatusCode != 301 || reply.Header.Get("Location") != "/api/v1/nodes/n1/proxy/" {
		t.Errorf("no trailing slash: %d %s", reply.StatusCode, reply.Header.Get("Location"))
	}
	if code, body := c.do("GET", "/api/v1/namespaces/default/services/nope/proxy/", "", nil); code != 503 {
		t.Errorf("service: %d %s", code, body)
	}
	if code, body := c.do("GET", "/api/v1/namespaces/default/pods/one:80/proxy/", "", nil); code != 400 || status(t, body).Message != "address not allowed" {
		t.Errorf("pod: %d %s", code, body)
	}
}

func TestEviction(t *testing.T) {
	c := start(t)
	withNode(t, c)
	ctx := context.Background()
	pods := c.client.CoreV1().Pods("default")
	p, err := pods.Get(ctx, "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	if _, err := pods.UpdateStatus(ctx, p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	budgets := c.client.PolicyV1().PodDisruptionBudgets("default")
	budget, err := budgets.Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "b"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "one"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	evict := func() error {
		return pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "default"}})
	}
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, DesiredHealthy: 1, CurrentHealthy: 1, ExpectedPods: 1}
	if budget, err = budgets.UpdateStatus(ctx, budget, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = evict()
	if !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		t.Errorf("eviction against the budget: %v", err)
	}
	budget.Status.DisruptionsAllowed = 1
	if _, err := budgets.UpdateStatus(ctx, budget, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := evict(); err != nil {
		t.Errorf("eviction within the budget: %v", err)
	}
	after, err := budgets.Get(ctx, "b", metav1.GetOptions{})
	if _, booked := after.Status.DisruptedPods["one"]; err != nil || after.Status.DisruptionsAllowed != 0 || !booked {
		t.Errorf("budget: %+v %v", after.Status, err)
	}
	gone, err := pods.Get(ctx, "one", metav1.GetOptions{})
	if err != nil || gone.DeletionTimestamp == nil {
		t.Errorf("pod: %v %v", gone.DeletionTimestamp, err)
	}
	if mark := disruption(gone); mark == nil || mark.Status != corev1.ConditionTrue || mark.Reason != "EvictionByEvictionAPI" || mark.LastTransitionTime.IsZero() {
		t.Errorf("no word of the eviction in the pod: %+v", gone.Status.Conditions)
	}
}

func disruption(p *corev1.Pod) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == corev1.DisruptionTarget {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// TestEvictionOfWhatNeedsNoBudget evicts a pod that has not begun: at once, and
// only as the client knows it.
func TestEvictionOfWhatNeedsNoBudget(t *testing.T) {
	c := start(t)
	withNode(t, c)
	ctx := context.Background()
	pods := c.client.CoreV1().Pods("default")
	evict := func(options *metav1.DeleteOptions) error {
		return pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "default"}, DeleteOptions: options})
	}
	old := "1"
	if err := evict(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &old}}); !apierrors.IsConflict(err) {
		t.Errorf("another version: %v", err)
	}
	if err := evict(&metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("dry run: %v", err)
	}
	p, err := pods.Get(ctx, "one", metav1.GetOptions{})
	if err != nil || p.DeletionTimestamp != nil || disruption(p) != nil {
		t.Errorf("after a dry run: %+v %v", p, err)
	}
	if err := evict(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &p.ResourceVersion}}); err != nil {
		t.Errorf("this version: %v", err)
	}
	if p, err = pods.Get(ctx, "one", metav1.GetOptions{}); err == nil && (p.DeletionTimestamp == nil || disruption(p) == nil) {
		t.Errorf("not evicted: %+v", p)
	}
}

// fakeIssuer signs nothing.
type fakeIssuer struct{}

func (fakeIssuer) Issue(_ context.Context, account *corev1.ServiceAccount, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	answer := r.DeepCopy()
	answer.Status.Token = "token of " + account.Name
	return answer, nil
}
func (fakeIssuer) KeySet() ([]byte, error)    { return []byte(`{"keys":[]}`), nil }
func (fakeIssuer) Discovery() ([]byte, error) { return nil, errors.New("none") }

func TestTokens(t *testing.T) {
	c := start(t, func(cfg *Config) { cfg.Tokens = fakeIssuer{} })
	ctx := context.Background()
	accounts := c.client.CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := accounts.CreateToken(ctx, "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil || got.Status.Token != "token of robot" {
		t.Errorf("%+v %v", got, err)
	}
	if m := got.ManagedFields; len(m) != 1 || string(m[0].FieldsV1.Raw) != `{"f:spec":{"f:expirationSeconds":{}}}` {
		t.Errorf("owners of a token: %+v", m)
	}
	other := &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{UID: "other"}}
	if _, err := accounts.CreateToken(ctx, "robot", other, metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("token of another account of that name: %v", err)
	}
	resp := c.raw("GET", "/openid/v1/jwks", "", nil)
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != `{"keys":[]}` || resp.Header.Get("Content-Type") != "application/jwk-set+json" {
		t.Errorf("keys: %s, %s", resp.Header.Get("Content-Type"), body)
	}
}

func TestReviews(t *testing.T) {
	c := start(t)
	ctx := context.Background()
	token, err := c.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "bob"}}, metav1.CreateOptions{})
	if err != nil || !token.Status.Authenticated || token.Status.User.Username != "bob" {
		t.Errorf("token: %+v %v", token.Status, err)
	}
	self, err := c.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || self.Status.UserInfo.Username != "admin" {
		t.Errorf("self: %+v %v", self, err)
	}
	attributes := &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: "default"}
	own, err := c.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}, metav1.CreateOptions{})
	if err != nil || !own.Status.Allowed {
		t.Errorf("own access: %+v %v", own, err)
	}
	other, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "bob", ResourceAttributes: attributes}}, metav1.CreateOptions{})
	if err != nil || other.Status.Allowed {
		t.Errorf("access: %+v %v", other, err)
	}
	if _, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: attributes}}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("nobody: %v", err)
	}
	if _, err := c.client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("rules: %v", err)
	}
}

func TestKubernetesService(t *testing.T) {
	c := start(t, func(cfg *Config) { cfg.AdvertiseAddress = "192.0.2.1" })
	ctx := context.Background()
	service, err := c.client.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil || service.Spec.ClusterIP != "10.96.0.1" {
		t.Fatalf("service: %+v %v", service, err)
	}
	slice, err := c.client.DiscoveryV1().EndpointSlices("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil || len(slice.Endpoints) != 1 || slice.Endpoints[0].Addresses[0] != "192.0.2.1" {
		t.Errorf("slice: %+v %v", slice, err)
	}
	// What is deleted comes back.
	if err := c.client.CoreV1().Services("default").Delete(ctx, "kubernetes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.server.Bootstrap(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{}); err != nil {
		t.Errorf("the service did not come back: %v", err)
	}
}

func TestComponentStatuses(t *testing.T) {
	c := start(t, func(cfg *Config) {
		cfg.Components = []Check{
			{Name: "scheduler", Ask: func(context.Context) (string, error) { return "ok", nil }},
			{Name: "controller-manager", Ask: func(context.Context) (string, error) { return "", errors.New("connection refused") }},
		}
	})
	list, err := c.client.CoreV1().ComponentStatuses().List(context.Background(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("%+v %v", list, err)
	}
	if got := list.Items[1].Conditions[0]; got.Status != corev1.ConditionFalse || got.Message != "connection refused" {
		t.Errorf("%+v", got)
	}
	if _, err := c.client.CoreV1().ComponentStatuses().Get(context.Background(), "scheduler", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
