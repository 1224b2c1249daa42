package differential

import (
	"context"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// commands are what upstream's kubectl makes of the documents, words and all.
var commands = []string{
	"api-resources -o wide",
	"api-resources --namespaced=false --sort-by=kind",
	"api-versions",
	"explain pods --recursive",
	"explain deployments.spec.template.spec.containers.resources",
	"explain horizontalpodautoscalers.spec --api-version=autoscaling/v1",
	"explain customresourcedefinitions.spec.versions.schema",
	"explain pods.spec.affinity --output=plaintext-openapiv2",
	"explain nodes.none",
	"explain nones",
}

func nameOfCommand(command string) string { return "kubectl/" + strings.ReplaceAll(command, " ", "_") }

func wantedCommands(wanted *regexp.Regexp) []string {
	return slices.DeleteFunc(slices.Clone(commands), func(c string) bool { return !wanted.MatchString(nameOfCommand(c)) })
}

// playCommands runs some against both servers.
func (p *pair) playCommands(t *testing.T, some []string) []result {
	t.Helper()
	var results []result
	theirCache, ourCache := t.TempDir(), t.TempDir()
	for _, command := range some {
		var theirs, our string
		var wait sync.WaitGroup
		wait.Go(func() { theirs = p.run(t.Context(), p.upstream, theirCache, command) })
		wait.Go(func() { our = p.run(t.Context(), p.ours, ourCache, command) })
		wait.Wait()
		results = append(results, result{name: nameOfCommand(command), found: compare("", theirs, our)})
	}
	return results
}

// run is what kubectl says, whether it is content or not.
func (p *pair) run(ctx context.Context, s *server, cache, command string) string {
	args := append(strings.Fields(command), "--server="+s.url, "--cache-dir="+cache,
		"--certificate-authority="+p.pki.File("ca.crt"), "--client-certificate="+p.pki.File("admin.crt"), "--client-key="+p.pki.File("admin.key"))
	said, err := exec.CommandContext(ctx, p.kubectl, args...).CombinedOutput()
	if err != nil {
		said = append(said, err.Error()...)
	}
	return maskText(string(said))
}
