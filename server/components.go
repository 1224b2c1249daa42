package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/server/storage"
)

// componentstatuses is an old view of the control plane on this machine: each
// component is asked whether it is well when the object is read.

// ComponentChecks are the components that componentstatuses and the map show:
// those on this machine, unless the configuration names others.
func (s *Server) ComponentChecks() []Check {
	if s.Components != nil {
		return s.Components
	}
	return LocalComponents(s.Store)
}

// LocalComponents asks the scheduler and the controller manager of this machine,
// and etcd.
func LocalComponents(store *storage.Store) []Check {
	return []Check{
		{"scheduler", askHealth("https://127.0.0.1:10259/healthz"), askVersion("https://127.0.0.1:10259/statusz")},
		{"controller-manager", askHealth("https://127.0.0.1:10257/healthz"), askVersion("https://127.0.0.1:10257/statusz")},
		{Name: "etcd-0", Ask: func(ctx context.Context) (string, error) { return "ok", store.Ready(ctx) }},
	}
}

// askHealth asks a component on this machine; its certificate is its own affair.
func askHealth(url string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // as upstream: only on loopback
		}}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return "", err
		}
		reply, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer reply.Body.Close()
		body, err := io.ReadAll(io.LimitReader(reply.Body, 1024))
		if err != nil {
			return "", err
		}
		if reply.StatusCode != http.StatusOK {
			return "", fmt.Errorf("unexpected health response %d: %s", reply.StatusCode, body)
		}
		return string(body), nil
	}
}

// askVersion reads the version off a component's page about itself, which is for
// people: whatever else is there, or nothing, is no version.
func askVersion(url string) func(context.Context) string {
	ask := askHealth(url)
	return func(ctx context.Context) string {
		page, err := ask(ctx)
		if err != nil {
			return ""
		}
		for line := range strings.Lines(page) {
			if _, version, ok := strings.Cut(line, "Binary version="); ok {
				return "v" + strings.TrimSpace(version)
			}
		}
		return ""
	}
}

func componentStatus(ctx context.Context, p Check) *corev1.ComponentStatus {
	status := &corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: p.Name}}
	status.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ComponentStatus"))
	condition := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue}
	text, err := p.Ask(ctx)
	condition.Message = text
	if err != nil {
		condition.Status, condition.Message = corev1.ConditionFalse, err.Error()
	}
	status.Conditions = []corev1.ComponentCondition{condition}
	return status
}

const componentWarning = "v1 ComponentStatus is deprecated in v1.19+"

func (c *call) getComponent() error {
	c.warn(componentWarning)
	for _, p := range c.s.ComponentChecks() {
		if p.Name == c.Name {
			return c.reply(http.StatusOK, componentStatus(c.r.Context(), p), c.kind.GroupVersionKind)
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "componentstatus"}, c.Name) // in upstream's words
}

func (c *call) listComponents() error {
	c.warn(componentWarning)
	c.flushWarnings()
	components := c.s.ComponentChecks()
	items := make([]*storage.Item, len(components))
	var asking sync.WaitGroup
	for i, p := range components {
		asking.Go(func() {
			status := componentStatus(c.r.Context(), p)
			items[i] = storage.NewItem(status)
		})
	}
	asking.Wait()
	if c.out.as != "" || c.out.name == typeProtobuf || c.out.name == typeCBOR {
		return c.replyPage(http.StatusOK, &storage.Page{Items: items})
	}
	list := corev1.ComponentStatusList{}
	for _, item := range items {
		list.Items = append(list.Items, *item.Object().(*corev1.ComponentStatus))
		list.Items[len(list.Items)-1].TypeMeta = metav1.TypeMeta{}
	}
	body, err := json.Marshal(list.Items)
	if err != nil {
		return err
	}
	return writeEncoded(c.w, c.r, c.out, http.StatusOK, storage.Message{Rest: fmt.Appendf(typeHead(c.listKind()), `,"metadata":{},"items":%s}`, body)}, c.listKind())
}
