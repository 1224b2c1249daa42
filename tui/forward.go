package tui

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// forward is a port-forward that runs, or ended with an error.
type forward struct {
	of    target
	ports string
	stop  context.CancelFunc

	mu    sync.Mutex
	state string
}

func (f *forward) set(state string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = state
}

func (f *forward) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprintf("127.0.0.1:%-14s %-40s %s", f.ports, f.of, f.state)
}

// askForward asks for the ports, beginning with the pod's first.
func (a *app) askForward(t target) {
	a.async(func(ctx context.Context) func() {
		pod, port, err := a.cluster.forwardTo(ctx, t)
		return func() {
			if err != nil {
				a.fail(err)
				return
			}
			a.question(question{title: a.words.say("port-forward") + " " + t.String(), ask: "local:remote", value: port, yes: "OK", do: func(ports string) {
				a.startForward(target{kind: a.kinds.byPlural("pods"), namespace: t.namespace, name: pod}, strings.TrimSpace(ports))
			}})
		}
	})
}

// forwardTo finds the pod to forward to, and the ports to offer.
func (c *cluster) forwardTo(ctx context.Context, t target) (pod, ports string, err error) {
	if t.kind.plural == "pods" {
		p, err := c.kube.CoreV1().Pods(t.namespace).Get(ctx, t.name, metav1.GetOptions{})
		if err != nil {
			return "", "", err
		}
		return p.Name, offer(p), nil
	}
	selector, err := c.podSelector(ctx, t)
	if err != nil {
		return "", "", err
	}
	list, err := c.kube.CoreV1().Pods(t.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return "", "", err
	}
	for i := range list.Items {
		if list.Items[i].Status.Phase == corev1.PodRunning {
			return list.Items[i].Name, offer(&list.Items[i]), nil
		}
	}
	return "", "", fmt.Errorf("port-forward: no pod of %s runs", t)
}

func offer(p *corev1.Pod) string {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			local := port.ContainerPort
			if local < 1024 {
				local += 8000
			}
			return fmt.Sprintf("%d:%d", local, port.ContainerPort)
		}
	}
	return "8080:80"
}

func (a *app) startForward(t target, ports string) {
	ctx, stop := context.WithCancel(a.ctx)
	f := &forward{of: t, ports: ports, stop: stop, state: "starting"}
	a.forwards = append(a.forwards, f)
	a.work.Go(func() {
		defer stop()
		err := a.cluster.forward(ctx, f)
		if ctx.Err() != nil {
			f.set("stopped")
			return
		}
		if err != nil {
			f.set("✗ " + err.Error())
			a.post(func() { a.fail(fmt.Errorf("port-forward %s: %w", ports, err)) })
		}
	})
	a.note("forwarding %s to %s", ports, t)
}

// forward runs until ctx ends or the connection breaks.
func (c *cluster) forward(ctx context.Context, f *forward) error {
	url := c.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(f.of.namespace).Name(f.of.name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return err
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	modern, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, c.config)
	if err != nil {
		return err
	}
	dialer := portforward.NewFallbackDialerForStreaming(modern, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	ready := make(chan struct{})
	var out bytes.Buffer
	fw, err := portforward.NewForStreaming(dialer, []string{f.ports}, ctx.Done(), ready, &out, &out)
	if err != nil {
		return err
	}
	go func() { // ends with ctx at the latest, which its caller cancels
		select {
		case <-ready:
			f.set("● running")
		case <-ctx.Done():
		}
	}()
	return fw.ForwardPorts()
}

// showForwards lists the port-forwards.
func (a *app) showForwards() {
	list := a.forwards
	a.push(newText(a, "port-forwards", func(context.Context) ([]string, error) {
		out := []string{}
		for _, f := range list {
			out = append(out, f.String())
		}
		if len(out) == 0 {
			out = append(out, "(none; shift-f on a pod starts one)")
		}
		return append(out, "", ":stop-forwards ends them all"), nil
	}))
}
