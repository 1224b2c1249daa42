package cmd

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"orrery.dev/trace"
)

// tracingFlags say where spans go, beside the window that the faces look into.
type tracingFlags struct{ file string }

func (f *tracingFlags) flags(set *pflag.FlagSet) {
	set.StringVar(&f.file, "tracing-config-file", "", "file (TracingConfiguration) that says which collector gets spans as OTLP, and how many (default: none)")
}

// receiver takes in the spans of all components.
func (f *tracingFlags) receiver() (*trace.Receiver, error) {
	config, err := f.read()
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file: %w", err)
	}
	rate := int32(0)
	if config != nil && config.SamplingRatePerMillion != nil {
		rate = *config.SamplingRatePerMillion
	}
	var collector otlptrace.Client
	if config != nil {
		options := []otlptracegrpc.Option{otlptracegrpc.WithInsecure()} // there is no TLS in that configuration
		if config.Endpoint != nil {
			options = append(options, otlptracegrpc.WithEndpoint(*config.Endpoint))
		}
		collector = otlptracegrpc.NewClient(options...)
	}
	return trace.NewReceiver(trace.NewWindow(), collector, trace.Rate(rate)), nil
}

// read is the file's configuration; nil: there is no file.
func (f *tracingFlags) read() (*tracingapi.TracingConfiguration, error) {
	if f.file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(f.file)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	obj, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), raw)
	if err != nil {
		return nil, err
	}
	config, ok := obj.(*apiserver.TracingConfiguration)
	if !ok {
		return nil, fmt.Errorf("%s is a %s, not a TracingConfiguration", f.file, obj.GetObjectKind().GroupVersionKind().Kind)
	}
	return &config.TracingConfiguration, tracingapi.ValidateTracingConfiguration(&config.TracingConfiguration, nil, field.NewPath("tracing")).ToAggregate()
}
