package differential

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// busy are cases that have a server do what it measures, where no others were played.
var busy = regexp.MustCompile(`^(watches|reviews|subresources|lists)/|^kinds/(configmaps|pods|apps-v1-deployments|endpoints|apiextensions-v1-customresourcedefinitions|apiregistration-v1-apiservices)/`)

// accidental are families of what happens by chance: requests that a server had
// to end, caches that were idle for long enough to shrink.
var accidental = []string{"apiserver_request_terminations_total", "watch_cache_capacity_decrease_total"}

// playMetrics compares what both have measured of the cases before: not the
// values, but the names, types, labels and buckets. Ours may have more.
func (p *pair) playMetrics(t *testing.T, wanted *regexp.Regexp) []result {
	t.Helper()
	theirs, our := p.upstream.metrics(t), p.ours.metrics(t)
	var results []result
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		if r := (result{name: "metrics/" + name}); wanted.MatchString(r.name) {
			if theirs[name] != our[name] && (our[name] != "" || !slices.Contains(accidental, name)) {
				r.found = compare("", theirs[name], our[name])
			}
			results = append(results, r)
		}
	}
	return results
}

// metrics is the form of each family that a server has.
func (s *server) metrics(t *testing.T) map[string]string {
	t.Helper()
	response, err := s.admin.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		t.Fatalf("metrics: %d %s", response.StatusCode, body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	forms := map[string]string{}
	for name, f := range families {
		forms[name] = form(f)
	}
	return forms
}

// form is a family without its values.
func form(f *dto.MetricFamily) string {
	labels := map[string]bool{}
	var buckets []string
	for _, m := range f.Metric {
		for _, l := range m.Label {
			labels[l.GetName()] = true
		}
		buckets = buckets[:0]
		for _, b := range m.GetHistogram().GetBucket() {
			buckets = append(buckets, fmt.Sprint(b.GetUpperBound()))
		}
	}
	return strings.TrimSpace(fmt.Sprintln(f.GetType(), slices.Sorted(maps.Keys(labels)), buckets))
}
