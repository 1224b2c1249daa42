package client

import (
	"fmt"
	"net/url"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"k8s.io/client-go/rest"

	"orrery.dev/api"
	"orrery.dev/trace"
)

// Spans makes a component's tracer, whose spans go to the API server's window.
// Other API servers have none, and are asked again seldom.
func Spans(cfg *rest.Config, component string) (*trace.Tracer, error) {
	if cfg == nil {
		return nil, nil
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("spans of %s: %w", component, err)
	}
	http, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("spans of %s: %w", component, err)
	}
	to := base.ResolveReference(&url.URL{Path: api.SpansPath})
	connection := otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(to.String()), otlptracehttp.WithHTTPClient(http),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	return trace.New(component, otlptrace.NewUnstarted(connection), nil), nil
}
