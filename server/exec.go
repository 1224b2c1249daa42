package server

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	streamproxy "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"orrery.dev/server/admission"
)

// exec, attach and portforward are taken to the agent of the pod's node. What
// runtimes understand (SPDY, websockets up to v4.channel.k8s.io) passes through
// untouched; of the newer protocols of clients, v5.channel.k8s.io is translated
// to SPDY here, and SPDY in a websocket is unwrapped.

func (c *call) exec() error {
	q := c.r.URL.Query()
	o := &corev1.PodExecOptions{
		Stdin: isTrue(q["stdin"]), Stdout: isTrue(q["stdout"]), Stderr: isTrue(q["stderr"]), TTY: isTrue(q["tty"]),
		Container: q.Get("container"), Command: q["command"],
	}
	to := streamQuery(o.Stdin, o.Stdout, o.Stderr, o.TTY)
	for _, word := range o.Command {
		to.Add("command", word)
	}
	return c.connectContainer("exec", o, o.Container, to, streamproxy.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY})
}

func (c *call) attach() error {
	q := c.r.URL.Query()
	o := &corev1.PodAttachOptions{
		Stdin: isTrue(q["stdin"]), Stdout: isTrue(q["stdout"]), Stderr: isTrue(q["stderr"]), TTY: isTrue(q["tty"]),
		Container: q.Get("container"),
	}
	streams := streamproxy.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY}
	return c.connectContainer("attach", o, o.Container, streamQuery(o.Stdin, o.Stdout, o.Stderr, o.TTY), streams)
}

func (c *call) portForward() error {
	o := &corev1.PodPortForwardOptions{}
	to := url.Values{}
	for _, list := range c.r.URL.Query()["ports"] {
		for _, text := range strings.Split(list, ",") {
			port, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				return apierrors.NewBadRequest(fmt.Sprintf("unable to parse %q as a port: %v", text, err))
			}
			o.Ports = append(o.Ports, int32(port))
			to.Add("port", text)
		}
	}
	pod, err := c.connectable(o)
	if err != nil {
		return err
	}
	if err := checkHost(pod); err != nil {
		return err
	}
	location, err := c.s.agentOf(c.r.Context(), pod)
	if err != nil {
		return err
	}
	location.Path = fmt.Sprintf("/portForward/%s/%s", pod.Namespace, pod.Name)
	location.RawQuery = to.Encode()
	if wsstream.IsWebSocketRequestWithTunnelingProtocol(c.r) {
		streamproxy.NewTunnelingHandler(c.forwarder(location, c.s.kubelet.transport, false, true)).ServeHTTP(c.w, c.r)
		return nil
	}
	return c.forward(location, c.s.kubelet.transport, false, true)
}

// streamQuery names the streams in the agent's words.
func streamQuery(stdin, stdout, stderr, tty bool) url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{corev1.ExecStdinParam: stdin, corev1.ExecStdoutParam: stdout, corev1.ExecStderrParam: stderr, corev1.ExecTTYParam: tty} {
		if on {
			q.Set(name, "1")
		}
	}
	return q
}

func (c *call) connectContainer(what string, options runtime.Object, container string, q url.Values, streams streamproxy.Options) error {
	pod, err := c.connectable(options)
	if err != nil {
		return err
	}
	if container, err = containerOf(pod, container); err != nil {
		return err
	}
	if err := checkHost(pod); err != nil {
		return err
	}
	location, err := c.s.agentOf(c.r.Context(), pod)
	if err != nil {
		return err
	}
	location.Path = fmt.Sprintf("/%s/%s/%s/%s", what, pod.Namespace, pod.Name, container)
	location.RawQuery = q.Encode()
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(c.r) {
		streamproxy.NewStreamTranslatorHandler(location, c.s.kubelet.transport, 0, streams).ServeHTTP(c.w, c.r)
		return nil
	}
	return c.forward(location, c.s.kubelet.transport, false, true)
}

// connectable finds the pod of a connecting subresource and asks admission. A
// websocket is always opened with GET, so the right to create is asked for
// beside the right to get.
func (c *call) connectable(options runtime.Object) (*corev1.Pod, error) {
	if c.Verb == "get" {
		if err := c.authorize("create"); err != nil {
			return nil, err
		}
	}
	if err := c.admitConnect(options); err != nil {
		return nil, err
	}
	return c.pod(c.r.Context())
}

// checkHost wants a pod to be on a node.
func checkHost(pod *corev1.Pod) error {
	if pod.Spec.NodeName == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	return nil
}

func (c *call) pod(ctx context.Context) (*corev1.Pod, error) {
	item, err := c.s.Store.Collection(schema.GroupResource{Resource: "pods"}).Get(ctx, c.Namespace, c.Name, "")
	if err != nil {
		return nil, err
	}
	return item.Object().(*corev1.Pod), nil
}

// admitConnect runs admission for a connecting subresource: the options are the
// object.
func (c *call) admitConnect(options runtime.Object) error {
	if len(c.r.URL.Query()["dryRun"]) > 0 {
		return apierrors.NewBadRequest("dryRun is not supported")
	}
	ctx := c.r.Context()
	kind := c.sub.Kind
	options.GetObjectKind().SetGroupVersionKind(kind)
	req := &admission.Request{
		Operation: admission.Connect, Resource: c.GVR, Subresource: c.Subresource, Kind: kind, Namespace: c.Namespace, Name: c.Name,
		Object: options, Options: &metav1.GetOptions{}, User: c.user, Warn: c.warn, Annotate: c.annotate,
	}
	defer req.Finish(ctx, nil)
	if err := c.s.Admission.Mutate(ctx, req); err != nil {
		return err
	}
	return c.s.Admission.Validate(ctx, req)
}

// containerOf is the container that a request means: the one it names, or the
// only one.
func containerOf(pod *corev1.Pod, name string) (string, error) {
	var all []string
	for _, ct := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		all = append(all, ct.Name)
	}
	for _, ct := range pod.Spec.EphemeralContainers {
		all = append(all, ct.Name)
	}
	switch regular := pod.Spec.Containers; {
	case name == "" && len(regular) == 1:
		return regular[0].Name, nil
	case name == "" && len(regular) == 0:
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s", pod.Name))
	case name == "":
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %v", pod.Name, all))
	case !slices.Contains(all, name):
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
	}
	return name, nil
}
