package run

import (
	"strings"
	"testing"

	"orrery.dev/test/conformance/report"
)

const output = `Running Suite: Kubernetes e2e suite - /cache/bin
SSSSSS
------------------------------
[SynchronizedBeforeSuite] PASSED [0.020 seconds]
[SynchronizedBeforeSuite] 
e2e.go:69
------------------------------
SSS
------------------------------
• [1.250 seconds]
[sig-node] Pods should run [Conformance] [sig-node, Conformance]
pods.go:12
------------------------------
• [FAILED] [30.000 seconds]
[sig-apps] Things [BeforeEach] with  parts [It] should end [Conformance] [sig-apps, Conformance]
  [BeforeEach] things.go:10
  [It] things.go:20

  Timeline >>
  STEP: begin @ 01/01/26 00:00:00.000
  [FAILED] in [It] - things.go:21 @ 01/01/26 00:00:30.000
  << Timeline

  [FAILED] Unexpected error:
      <*errors.StatusError | 0xc000123456>: 
      things "x" not found
      {
          ErrStatus: {
  In [It] at: things.go:21 @ 01/01/26 00:00:30.000
------------------------------
S [SKIPPED] [0.010 seconds]
[sig-network] Services need two nodes [Conformance] [sig-network]
services.go:1

  [SKIPPED] needs two nodes
  In [It] at: services.go:2 @ 01/01/26 00:00:00.000
------------------------------
• [INTERRUPTED] [2.000 seconds]
[sig-node] Pods should wait [Conformance] [sig-node]
pods.go:13
`

func TestReadStream(t *testing.T) {
	want := []ended{
		{step: "SynchronizedBeforeSuite", name: "[SynchronizedBeforeSuite]", state: report.Passed, seconds: 0.02},
		{name: "[sig-node] Pods should run [Conformance] [sig-node, Conformance]", state: report.Passed, seconds: 1.25},
		{
			name:  "[sig-apps] Things with parts should end [Conformance] [sig-apps, Conformance]",
			state: report.Failed, seconds: 30, err: `Unexpected error: things "x" not found { ErrStatus: {`,
		},
		{name: "[sig-network] Services need two nodes [Conformance] [sig-network]", state: report.Skipped, seconds: 0.01, err: "needs two nodes"},
		{name: "[sig-node] Pods should wait [Conformance] [sig-node]", state: report.Stopped, seconds: 2},
	}
	var got []ended
	if err := readStream(strings.NewReader(output), func(e ended) {
		e.text = ""
		got = append(got, e)
	}); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("got %d blocks, want %d:\n%+v", len(got), len(want), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got  %+v\nwant %+v", got[i], want[i])
		}
	}
}
