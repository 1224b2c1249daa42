package tui

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"orrery.dev/api"
)

// forwards are the port-forwards of this console. It is safe for concurrent use.
type forwards struct {
	mu   sync.Mutex // protects list
	list []*forward
}

func (l *forwards) add(f *forward) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, f)
}

func (l *forwards) all() []*forward {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// stop ends some and forgets them.
func (l *forwards) stop(which func(*forward) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.DeleteFunc(l.list, func(f *forward) bool {
		if !which(f) {
			return false
		}
		f.stop()
		return true
	})
}

// forward is a port-forward that runs, or ended with an error.
type forward struct {
	id    string
	of    target
	ports string
	stop  context.CancelFunc

	mu    sync.Mutex // protects the fields below
	state api.State
	text  string
}

func (f *forward) set(state api.State, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state, f.text = state, text
}

func (f *forward) row() api.Row {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := listRow(f.state, "127.0.0.1:"+f.ports, f.of.String(), f.text)
	r.UID = f.id
	return r
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
			if pod == "" {
				a.note("no pod of %s runs", t)
				return
			}
			a.question(question{title: a.words.say("port-forward") + " " + t.String(), ask: "local:remote", value: port, yes: "OK", do: func(ports string) {
				a.startForward(target{kind: a.kinds.byPlural("pods"), namespace: t.namespace, name: pod}, strings.TrimSpace(ports))
			}})
		}
	})
}

// forwardTo finds the pod to forward to, if one runs, and the ports to offer.
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
	return "", "", nil
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
	ctx, stop := context.WithCancel(a.life)
	f := &forward{id: string(uuid.NewUUID()), of: t, ports: ports, stop: stop, state: api.StateProgressing, text: "starting"}
	a.forwards.add(f)
	c := a.cluster
	a.work.Go(func() {
		defer stop()
		err := c.forward(ctx, f)
		if err != nil && ctx.Err() == nil {
			f.set(api.StateError, err.Error())
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
			f.set(api.StateOK, "running")
		case <-ctx.Done():
		}
	}()
	return fw.ForwardPorts()
}

// newForwards is the table of the port-forwards.
func (a *app) newForwards() *tablePane {
	return a.newList("portforwards", []string{"Name", "Of", "State"}, time.Second, func(context.Context) ([]api.Row, error) {
		var rows []api.Row
		for _, f := range a.forwards.all() {
			rows = append(rows, f.row())
		}
		return rows, nil
	})
}
