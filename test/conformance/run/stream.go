package run

import (
	"bufio"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"orrery.dev/test/conformance/report"
)

// ended is what Ginkgo prints when a test has ended, or a step of the suite
// around the tests.
type ended struct {
	step    string // empty: a test
	name    string // with its labels behind it
	state   report.State
	seconds float64
	err     string // first line of what went wrong
	text    string // all that was printed
}

// delimiter is the line before and after each of these texts.
var delimiter = strings.Repeat("-", 30)

// readStream reads the output of ginkgo -v as it comes. Its own reports are
// written at the end only, too late for a run that is stopped.
func readStream(r io.Reader, each func(ended)) error {
	lines := bufio.NewReaderSize(r, 1<<20)
	var block []string
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimSuffix(line, "\n")
		if line == delimiter || err != nil {
			if e, ok := parseBlock(block); ok {
				each(e)
			}
			block = block[:0]
		} else {
			block = append(block, line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

var header = regexp.MustCompile(`^(•|S|\[(\w+)\])(?: PASSED)?(?: \[([A-Z !]+)\])? \[([0-9.]+) seconds\]$`)

var states = map[string]report.State{"": report.Passed, "SKIPPED": report.Skipped, "INTERRUPTED": report.Stopped}

func parseBlock(lines []string) (ended, bool) {
	if len(lines) < 2 {
		return ended{}, false
	}
	parts := header.FindStringSubmatch(lines[0])
	if parts == nil {
		return ended{}, false
	}
	state, known := states[parts[3]]
	if !known {
		state = report.Failed // also by panic, timeout or abortion
	}
	seconds, _ := strconv.ParseFloat(parts[4], 64)
	return ended{
		step: parts[2], name: testName(lines[1]), state: state, seconds: seconds,
		err: firstError(lines), text: strings.Join(lines, "\n") + "\n",
	}, true
}

// place is what Ginkgo writes into the name of a test to show where it failed.
var place = regexp.MustCompile(`TOP-LEVEL |\[(It|(Just)?(Before|After)(Each|All)|DeferCleanup( \(\w+\))?)\] ?`)

func testName(line string) string {
	return strings.Join(strings.Fields(place.ReplaceAllString(line, "")), " ")
}

var (
	failure = regexp.MustCompile(`^\s*\[[A-Z !]+\] (.*)$`)
	// A failure in the timeline has its place only; the message follows below.
	inTimeline = regexp.MustCompile(`^\s*\[[A-Z !]+\] in \[`)
	whereabout = regexp.MustCompile(`^\s*In \[[^]]+\] at: `)
	goType     = regexp.MustCompile(`^<\*?[\w.\[\]*]+( \| 0x[0-9a-f]+)?>:?$`)
)

// errorLength is about how much of a message is enough to tell what it is.
const errorLength = 70

// firstError is the beginning of the failure's message, in one line: as many
// lines of it as say something.
func firstError(lines []string) string {
	for i, line := range lines {
		if strings.TrimSpace(line) == "<< Timeline" {
			lines = lines[i+1:]
			break
		}
	}
	var words []string
	length, found := 0, false
	for _, line := range lines[min(1, len(lines)):] {
		if !found {
			parts := failure.FindStringSubmatch(line)
			if parts == nil || inTimeline.MatchString(line) {
				continue
			}
			line, found = parts[1], true
		} else if whereabout.MatchString(line) {
			break
		}
		line = strings.TrimSpace(line)
		if line == "" || goType.MatchString(line) {
			continue
		}
		words = append(words, line)
		if length += len(line); length >= errorLength {
			break
		}
	}
	text := strings.Join(words, " ")
	if len(text) > 4*errorLength {
		text = strings.ToValidUTF8(text[:4*errorLength], "") + "..."
	}
	return text
}
