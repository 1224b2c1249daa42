// Package webhook calls the services that decide or listen beside the API server
// and that a file in kubeconfig format points to: token authentication,
// authorisation, audit, image policy. The file's server is the whole URL, and its
// user is who the API server is to the service.
//
// A Client posts JSON and tries again after what looks like passing trouble, with
// growing pauses. What the questions and answers are is the callers' business.
// Admission and conversion webhooks, which objects of the API point to, are called
// by package admission.
package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// requestTimeout bounds one attempt.
const requestTimeout = 30 * time.Second

// Options of a Client. The zero value is right for questions that a request
// waits for.
type Options struct {
	// FirstPause is the pause after the first failure, half a second if 0. The
	// following ones grow by half.
	FirstPause time.Duration
	// Attempts is how often a question is asked at most, 5 if 0.
	Attempts int
	// Timeout bounds one attempt, 30 s if 0.
	Timeout time.Duration
	// RetryAll tries again after any error; else only after those that pass.
	RetryAll bool
}

// Client calls one service.
type Client struct {
	rest    *rest.RESTClient
	options Options
}

// Open reads a file in kubeconfig format.
func Open(file string, o Options) (*Client, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: file}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	return New(config, o)
}

// New makes a client of a configuration, which it takes over.
func New(config *rest.Config, o Options) (*Client, error) {
	if o.FirstPause == 0 {
		o.FirstPause = 500 * time.Millisecond
	}
	if o.Attempts == 0 {
		o.Attempts = 5
	}
	config.Timeout = requestTimeout
	if o.Timeout != 0 {
		config.Timeout = o.Timeout
	}
	config.QPS = -1 // how many questions there are is decided by who asks us
	config.ContentType = runtime.ContentTypeJSON
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Client{rest: client, options: o}, nil
}

// Post asks a question and reads the answer, if there is anything to read it
// into.
func (c *Client) Post(ctx context.Context, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	raw, err := c.PostBytes(ctx, body)
	if err != nil || answer == nil {
		return err
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("answer of the webhook: %w", err)
	}
	return nil
}

// PostBytes sends a body and returns that of the answer.
func (c *Client) PostBytes(ctx context.Context, body []byte) (answer []byte, err error) {
	backoff := wait.Backoff{Duration: c.options.FirstPause, Factor: 1.5, Jitter: 0.2, Steps: c.options.Attempts}
	var last error
	err = wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		answer, last = c.rest.Post().SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Raw()
		if last != nil && (c.options.RetryAll || passes(last)) {
			return false, nil
		}
		return true, last
	})
	switch {
	case last != nil:
		return nil, last
	case err != nil:
		return nil, fmt.Errorf("webhook call failed: %w", err)
	}
	return answer, nil
}

// passes reports whether another attempt may go better.
func passes(err error) bool {
	if utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) {
		return true
	}
	_, later := apierrors.SuggestsClientDelay(err)
	return later
}
