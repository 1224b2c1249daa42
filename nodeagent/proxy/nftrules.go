package proxy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// nftRules is the content of one table, in a form that can be compared.
type nftRules struct {
	sets   map[string]*nftSet
	chains map[string]*nftChain
}

type nftSet struct {
	isMap    bool
	decl     string
	elements map[string]string // key to verdict, "" in a plain set
}

type nftChain struct {
	base  string // the hook of a base chain
	rules []string
}

func newNFTRules() *nftRules {
	return &nftRules{sets: map[string]*nftSet{}, chains: map[string]*nftChain{}}
}

func (r *nftRules) addSet(name string, isMap bool, decl string) {
	r.sets[name] = &nftSet{isMap: isMap, decl: decl, elements: map[string]string{}}
}

func (r *nftRules) addElement(set, key, value string) {
	// The first one in the order of names wins, should two Services claim one
	// address and port.
	if _, taken := r.sets[set].elements[key]; !taken {
		r.sets[set].elements[key] = value
	}
}

func (r *nftRules) addChain(name string, rules ...string) { r.chains[name] = &nftChain{rules: rules} }

func (r *nftRules) addBase(name, hook string, rules ...string) {
	r.chains[name] = &nftChain{base: hook, rules: rules}
}

func (r *nftRules) hasChain(name string) bool { return r.chains[name] != nil }

// nftScript writes commands for one table.
type nftScript struct {
	strings.Builder
	table string // family and name
}

func (s *nftScript) say(verb, kind, rest string) {
	fmt.Fprintf(s, "%s %s %s %s\n", verb, kind, s.table, rest)
}

func kindOf(s *nftSet) string {
	if s.isMap {
		return "map"
	}
	return "set"
}

// replace is the whole table, in place of whatever there is.
func (r *nftRules) replace(family Family) string {
	s := &nftScript{table: string(family) + " " + nftTable}
	fmt.Fprintf(s, "add table %[1]s\ndelete table %[1]s\nadd table %[1]s\n", s.table)
	r.write(s, newNFTRules())
	return s.String()
}

// changes is what leads from old to r; "" when they are equal.
func (r *nftRules) changes(family Family, old *nftRules) string {
	for name, set := range r.sets {
		// The kernel cannot change a set's declaration in place.
		if before := old.sets[name]; before != nil && before.decl != set.decl {
			return r.replace(family)
		}
	}
	s := &nftScript{table: string(family) + " " + nftTable}
	r.write(s, old)
	return s.String()
}

// write orders the commands so that every name exists where it is used, and is
// unused where it is deleted.
func (r *nftRules) write(s *nftScript, old *nftRules) {
	for _, name := range sorted(r.sets) {
		if old.sets[name] == nil {
			s.say("add", kindOf(r.sets[name]), fmt.Sprintf("%s { %s }", name, r.sets[name].decl))
		}
	}
	for _, name := range sorted(r.chains) {
		if old.chains[name] == nil {
			rest := name
			if base := r.chains[name].base; base != "" {
				rest += " { " + base + " }"
			}
			s.say("add", "chain", rest)
		}
	}
	for _, name := range sorted(r.chains) {
		before := old.chains[name]
		if before != nil && slices.Equal(before.rules, r.chains[name].rules) {
			continue
		}
		if before != nil {
			s.say("flush", "chain", name)
		}
		for _, rule := range r.chains[name].rules {
			s.say("add", "rule", name+" "+rule)
		}
	}
	for _, name := range sorted(r.sets) {
		r.writeElements(s, name, old.sets[name])
	}
	// Chains refer to one another: all are emptied before any is deleted.
	var gone []string
	for _, name := range sorted(old.chains) {
		if r.chains[name] == nil {
			gone = append(gone, name)
			s.say("flush", "chain", name)
		}
	}
	for _, name := range gone {
		s.say("delete", "chain", name)
	}
	for _, name := range sorted(old.sets) {
		if r.sets[name] == nil {
			s.say("delete", kindOf(old.sets[name]), name)
		}
	}
}

func (r *nftRules) writeElements(s *nftScript, name string, old *nftSet) {
	now := r.sets[name].elements
	before := map[string]string{}
	if old != nil {
		before = old.elements
	}
	var remove, add []string
	for _, key := range sorted(before) {
		if value, still := now[key]; !still || value != before[key] {
			remove = append(remove, key)
		}
	}
	for _, key := range sorted(now) {
		if value, was := before[key]; was && value == now[key] {
			continue
		}
		if now[key] == "" {
			add = append(add, key)
		} else {
			add = append(add, key+" : "+now[key])
		}
	}
	if len(remove) > 0 {
		s.say("delete", "element", fmt.Sprintf("%s { %s }", name, strings.Join(remove, ", ")))
	}
	if len(add) > 0 {
		s.say("add", "element", fmt.Sprintf("%s { %s }", name, strings.Join(add, ", ")))
	}
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
