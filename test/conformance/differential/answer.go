package differential

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Answer is what a server said, ready to be compared.
type Answer struct {
	Code   int
	Header map[string]string
	Body   any // decoded JSON, or a string
}

// headers are those that matter to clients.
var headers = []string{"Content-Type", "Warning", "Cache-Control", "Location", "Retry-After", "Vary", "Allow", "X-Content-Type-Options", "Www-Authenticate", "Content-Encoding"}

func newAnswer(r *http.Response, body []byte) Answer {
	a := Answer{Code: r.StatusCode, Header: map[string]string{}}
	for _, h := range headers {
		if v := r.Header.Values(h); len(v) > 0 {
			a.Header[h] = maskText(strings.Join(v, " | "))
		}
	}
	var decoded any
	switch {
	case r.StatusCode == http.StatusOK && isWatch(r.Request.URL) && r.Header.Get("Content-Type") == "application/json":
		a.Body = watched(body)
	case json.Unmarshal(body, &decoded) == nil:
		a.Body = mask("", decoded)
	case strings.HasSuffix(r.Header.Get("Content-Type"), ";stream=watch"), strings.HasSuffix(r.Header.Get("Content-Type"), "cbor-seq"):
		a.Body = binaryEvents(r.Header.Get("Content-Type"), body)
	case r.Header.Get("Content-Type") == "application/yaml" && yaml.Unmarshal(body, &decoded) == nil:
		a.Body = mask("", decoded)
	case strings.Contains(r.Header.Get("Content-Type"), "protobuf"), strings.Contains(r.Header.Get("Content-Type"), "cbor"):
		a.Body = binary(r.Header.Get("Content-Type"), body)
	default:
		a.Body = maskText(string(body))
	}
	port, _ := strconv.ParseFloat(r.Request.URL.Port(), 64)
	a.Body = withoutPort(a.Body, port)
	return a
}

// withoutPort masks the port that a server listens on.
func withoutPort(v any, port float64) any {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			v[k] = withoutPort(inner, port)
		}
	case []any:
		for i := range v {
			v[i] = withoutPort(v[i], port)
		}
	case float64:
		if v == port {
			return "<port>"
		}
	}
	return v
}

func isWatch(to *url.URL) bool {
	return strings.Contains(to.RawQuery, "watch=") || strings.Contains(to.Path, "/watch/")
}

// watched are the events of a watch, one a line.
func watched(body []byte) any {
	var events []any
	for _, line := range strings.Split(strings.TrimSpace(string(body)), "\n") {
		var e any
		if json.Unmarshal([]byte(line), &e) == nil && !timed(e) {
			events = append(events, mask("", e))
		}
	}
	return events
}

// timed tells bookmarks that come when it is time for them.
func timed(event any) bool {
	text := show(event)
	return strings.HasSuffix(text, `"type":"BOOKMARK"}`) && !strings.Contains(text, "k8s.io/initial-events-end")
}

// masked are fields whose values a server makes up.
var masked = map[string]bool{
	"uid": true, "resourceVersion": true, "creationTimestamp": true, "deletionTimestamp": true, "time": true, "clusterIP": true, "clusterIPs": true, "nodePort": true, "healthCheckNodePort": true,
	"continue": true, "token": true, "serverAddressByClientCIDRs": true, "storageVersionHash": true, "expirationTimestamp": true,
	// Words, not structure: those of tables and OpenAPI documents are our own.
	"description": true,
	// Of a build.
	"gitTreeState": true, "gitCommit": true, "buildDate": true, "uptimeSeconds": true,
	// Of content that is compared itself, words and all.
	"serverRelativeURL": true,
}

// built are those that a build may leave empty.
var built = map[string]bool{"gitTreeState": true, "gitCommit": true, "buildDate": true}

func mask(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			v[k] = mask(k, inner)
		}
		if _, named := v["generateName"].(string); named && v["name"] != nil {
			v["name"] = "*"
		}
		return v
	case []any:
		if masked[key] {
			return "*"
		}
		for i := range v {
			v[i] = mask("", v[i])
		}
		if unordered(key, v) {
			sort.Slice(v, func(i, j int) bool { return show(v[i]) < show(v[j]) })
		}
		if key == "managedFields" { // which are in the order of their times, by the second
			slices.SortStableFunc(v, func(a, b any) int {
				return cmp.Or(cmp.Compare(operation(a), operation(b)), cmp.Compare(show(a), show(b)))
			})
		}
		return v
	case nil:
		return nil
	case string:
		if masked[key] && (v != "" && v != "None" || built[key]) {
			return "*"
		}
		if strings.Contains(v, "duplicate entries for key") { // which upstream finds in any order
			all := strings.Split(v, "\n")
			slices.Sort(all[1:])
			v = strings.Join(all, "\n")
		}
		return maskText(v)
	}
	if masked[key] {
		return "*"
	}
	return v
}

// operation is what a manager of fields did, which they are ordered by first.
func operation(managed any) string {
	m, _ := managed.(map[string]any)
	return show(m["operation"])
}

// unordered tells lists that upstream keeps in no order.
func unordered(key string, list []any) bool {
	switch key {
	case "causes":
		return strings.Contains(show(list), "FieldManagerConflict")
	case "resourceRules", "nonResourceRules":
		return true
	case "items", "rows": // of components
		return strings.Contains(show(list), `"etcd-0"`)
	}
	return false
}

var (
	uuids   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	times   = regexp.MustCompile(`20[23]\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	volumes = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)
	ages    = regexp.MustCompile(`^(<invalid>|\d+s|\d+m(\d+s)?)$`)
	records = regexp.MustCompile(`(ResourceVersion in record \(|ResourceVersion in object meta: |current: |"?resourceVersion\\?":\s?\\?")\d+`)
	suffix  = regexp.MustCompile(`(Bad_|gen-)[a-z0-9]{5}\b`)
	goTypes = regexp.MustCompile(`Go (value|struct field \S+) of type \S+`)
	service = regexp.MustCompile(`\b10\.96\.\d+\.\d+\b`)
	demands = regexp.MustCompile(`capacity\[[^]]*\](\.requestPolicy: Forbidden|\.requestPolicy$)`) // which upstream finds in any order
	nodes   = regexp.MustCompile(`(odePort\\?":|:)3\d{4}\b`)
	ports   = regexp.MustCompile(`(127\.0\.0\.1|192\.0\.2\.1):\d+`)
)

func maskText(s string) string {
	s = uuids.ReplaceAllString(s, "<uuid>")
	s = times.ReplaceAllString(s, "<time>")
	s = volumes.ReplaceAllString(s, "kube-api-access-*")
	s = records.ReplaceAllString(s, "$1*")
	s = suffix.ReplaceAllString(s, "$1*")
	s = goTypes.ReplaceAllString(s, "Go $1")
	s = service.ReplaceAllString(s, "<service>")
	s = demands.ReplaceAllString(s, "capacity[*]$1")
	s = ports.ReplaceAllString(s, "<server>")
	s = nodes.ReplaceAllString(s, "$1<node port>")
	return ages.ReplaceAllString(s, "<age>")
}

// differences compares answers, one line for each difference: where it is, what
// upstream says and what we say.
func differences(theirs, our Answer) []string {
	var found []string
	if theirs.Code != our.Code {
		found = append(found, fmt.Sprintf("code: upstream %d, ours %d", theirs.Code, our.Code))
	}
	for _, h := range headers {
		if theirs.Header[h] != our.Header[h] {
			found = append(found, fmt.Sprintf("header %s: upstream %q, ours %q", h, theirs.Header[h], our.Header[h]))
		}
	}
	return append(found, classes(compare("", theirs.Body, our.Body))...)
}

func compare(at string, a, b any) []string {
	am, aok := a.(map[string]any)
	bm, bok := b.(map[string]any)
	if aok && bok {
		return compareMaps(at, am, bm)
	}
	if x, y, ok := lines(a, b); ok {
		return compareLines(at, x, y)
	}
	al, aok := a.([]any)
	bl, bok := b.([]any)
	if aok && bok {
		var found []string
		for i := range max(len(al), len(bl)) {
			var x, y any = missing{}, missing{}
			if i < len(al) {
				x = al[i]
			}
			if i < len(bl) {
				y = bl[i]
			}
			found = append(found, compare(fmt.Sprintf("%s[%d]", at, i), x, y)...)
		}
		return found
	}
	x, y := show(a), show(b)
	if x == y {
		return nil
	}
	return []string{fmt.Sprintf("body %s:\n\t\tupstream %s\n\t\tours     %s", at, x, y)}
}

// lines are two values as lists of words: lists of strings, or texts of many lines.
func lines(a, b any) (x, y []string, ok bool) {
	if s, is := a.(string); is && strings.Count(s, "\n") > 1 {
		if t, is := b.(string); is {
			return strings.Split(s, "\n"), strings.Split(t, "\n"), true
		}
	}
	x, isX := stringsOf(a)
	y, isY := stringsOf(b)
	return x, y, isX && isY
}

func stringsOf(v any) ([]string, bool) {
	list, ok := v.([]any)
	if !ok || len(list) < 2 {
		return nil, false
	}
	var all []string
	for _, item := range list {
		s, ok := item.(string)
		if !ok {
			return nil, false
		}
		all = append(all, s)
	}
	return all, true
}

// compareLines tells what only one of two has, or that their order differs.
func compareLines(at string, a, b []string) []string {
	if slices.Equal(a, b) {
		return nil
	}
	without := func(all, others []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
	}
	theirs, our := without(a, b), without(b, a)
	if len(theirs)+len(our) == 0 {
		return []string{fmt.Sprintf("body %s: the same in another order:\n\t\tupstream %q\n\t\tours     %q", at, a, b)}
	}
	return []string{fmt.Sprintf("body %s:\n\t\tonly upstream %q\n\t\tonly ours     %q", at, theirs, our)}
}

// classes puts differences of one kind at many places together: documents about
// everything have the same thing wrong everywhere.
func classes(found []string) []string {
	if len(found) < few {
		return found
	}
	var order []string
	count, first := map[string]int{}, map[string]string{}
	for _, f := range found {
		class := places.ReplaceAllString(f, "*")
		if count[class]++; count[class] == 1 {
			order, first[class] = append(order, class), f
		}
	}
	all := make([]string, len(order))
	for i, class := range order {
		all[i] = fmt.Sprintf("%d like %s", count[class], first[class])
	}
	return all
}

// few is how many differences are told one by one; places are the parts of a path
// that differences of a kind may differ in.
const few = 20

var places = regexp.MustCompile(`/[^ :]*?(\.(get|put|post|patch|delete|head|options|parameters)\b)|\[\d+\]|(schemas|definitions)\.[\w.-]+\.[A-Z]\w*`)

func compareMaps(at string, a, b map[string]any) []string {
	keys := make([]string, 0, len(a))
	for k := range a {
		keys = append(keys, k)
	}
	for k := range b {
		if _, both := a[k]; !both {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	var found []string
	for _, k := range slices.Compact(keys) {
		x, inA := a[k]
		y, inB := b[k]
		if !inA {
			x = missing{}
		}
		if !inB {
			y = missing{}
		}
		found = append(found, compare(at+"."+k, x, y)...)
	}
	return found
}

// missing is the value of a field that is not there.
type missing struct{}

// shown is how much of a value a report has.
const shown = 1500

func show(v any) string {
	if _, is := v.(missing); is {
		return "(none)"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if s, ok := v.(string); ok {
		text = []byte(s)
	}
	if len(text) > shown {
		return fmt.Sprintf("%s… (%d bytes)", text[:shown], len(text))
	}
	return string(text)
}
