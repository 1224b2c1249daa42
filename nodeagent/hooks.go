package nodeagent

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"orrery.dev/nodeagent/probe"
)

// runHook runs a postStart or preStop hook to its end.
func (w *worker) runHook(ctx context.Context, pod *corev1.Pod, c *corev1.Container, id string, hook *corev1.LifecycleHandler) error {
	switch {
	case hook.Exec != nil:
		_, _, err := w.a.cfg.Runtime.ExecSync(ctx, id, hook.Exec.Command, 0)
		return err
	case hook.HTTPGet != nil:
		return w.httpHook(ctx, pod, c, hook.HTTPGet)
	case hook.Sleep != nil:
		sleep(ctx, time.Duration(hook.Sleep.Seconds)*time.Second)
		return nil
	}
	return fmt.Errorf("invalid handler: %v", hook)
}

func (w *worker) httpHook(ctx context.Context, pod *corev1.Pod, c *corev1.Container, get *corev1.HTTPGetAction) error {
	host := get.Host
	if host == "" {
		ips := w.a.addresses(pod, w.last)
		if len(ips) == 0 {
			return fmt.Errorf("failed to find networking container")
		}
		host = ips[0]
	}
	port, err := probe.Port(get.Port, c)
	if get.Port == (intstr.IntOrString{}) || get.Port.Type == intstr.String && get.Port.StrVal == "" {
		port, err = 80, nil
	}
	if err != nil {
		return err
	}
	req, err := probe.Request(ctx, get, net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
