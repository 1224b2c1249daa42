package controllers

import (
	"math"
	"slices"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

// hpaPast is what an autoscaler wanted and did lately.
type hpaPast struct {
	mu      sync.Mutex // protects the fields below
	wanted  []hpaMark
	changes []hpaMark
}

type hpaMark struct {
	at time.Time
	n  int32
}

// hpaMemory is how far back rules may look.
const hpaMemory = time.Hour

func (p *hpaPast) changed(now time.Time, by int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes = append(recent(p.changes, now, hpaMemory), hpaMark{now, by})
}

func recent(marks []hpaMark, now time.Time, within time.Duration) []hpaMark {
	return slices.DeleteFunc(slices.Clone(marks), func(m hpaMark) bool { return m.at.Before(now.Add(-within)) })
}

// defaultRules are the rules for what a behavior leaves out: up at once, by four
// pods or to the double every 15 s; down to any size, after five minutes of
// wanting no more.
func defaultRules(b *autoscalingv2.HorizontalPodAutoscalerBehavior) (up, down autoscalingv2.HPAScalingRules) {
	most := autoscalingv2.MaxChangePolicySelect
	zero, five := int32(0), int32(300)
	up = autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &zero, SelectPolicy: &most, Policies: []autoscalingv2.HPAScalingPolicy{
		{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}, {Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
	}}
	down = autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &five, SelectPolicy: &most, Policies: []autoscalingv2.HPAScalingPolicy{
		{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
	}}
	if b != nil {
		up, down = overlay(up, b.ScaleUp), overlay(down, b.ScaleDown)
	}
	return up, down
}

func overlay(rules autoscalingv2.HPAScalingRules, given *autoscalingv2.HPAScalingRules) autoscalingv2.HPAScalingRules {
	if given == nil {
		return rules
	}
	if given.StabilizationWindowSeconds != nil {
		rules.StabilizationWindowSeconds = given.StabilizationWindowSeconds
	}
	if given.SelectPolicy != nil {
		rules.SelectPolicy = given.SelectPolicy
	}
	if len(given.Policies) > 0 {
		rules.Policies = given.Policies
	}
	return rules
}

// limit holds a wanted size to the rules and the range.
func (p *hpaPast) limit(hpa *autoscalingv2.HorizontalPodAutoscaler, current, wanted, least int32, now time.Time) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	up, down := defaultRules(hpa.Spec.Behavior)
	p.wanted = append(recent(p.wanted, now, hpaMemory), hpaMark{now, wanted})
	steady := p.steady(current, up, down, now)
	if steady != wanted {
		reason, message := "ScaleDownStabilized", "recent recommendations were higher than current one, applying the highest recent recommendation"
		if steady < wanted {
			reason, message = "ScaleUpStabilized", "recent recommendations were lower than current one, applying the lowest recent recommendation"
		}
		setHPACondition(hpa, autoscalingv2.AbleToScale, corev1.ConditionTrue, reason, message, now)
	} else {
		setHPACondition(hpa, autoscalingv2.AbleToScale, corev1.ConditionTrue, "ReadyForNewScale", "recommended size matches current size", now)
	}
	out, limitedBy := steady, ""
	switch {
	case out > current:
		if most := p.growTo(current, up, now); out > most {
			out, limitedBy = max(most, current), "ScaleUpLimit"
		}
	case out < current:
		if fewest := p.shrinkTo(current, down, now); out < fewest {
			out, limitedBy = min(fewest, current), "ScaleDownLimit"
		}
	}
	switch {
	case out > hpa.Spec.MaxReplicas:
		out = hpa.Spec.MaxReplicas
		setHPACondition(hpa, autoscalingv2.ScalingLimited, corev1.ConditionTrue, "TooManyReplicas", "the desired replica count is more than the maximum replica count", now)
	case out < least:
		out = least
		setHPACondition(hpa, autoscalingv2.ScalingLimited, corev1.ConditionTrue, "TooFewReplicas", "the desired replica count is less than the minimum replica count", now)
	case limitedBy != "":
		setHPACondition(hpa, autoscalingv2.ScalingLimited, corev1.ConditionTrue, limitedBy, "the desired replica count is changing faster than the maximum scale rate", now)
	default:
		setHPACondition(hpa, autoscalingv2.ScalingLimited, corev1.ConditionFalse, "DesiredWithinRange", "the desired count is within the acceptable range", now)
	}
	return out
}

// steady is the size that has been wanted throughout the windows.
func (p *hpaPast) steady(current int32, up, down autoscalingv2.HPAScalingRules, now time.Time) int32 {
	lowest, highest := int32(math.MaxInt32), int32(0)
	for _, m := range p.wanted {
		age := now.Sub(m.at)
		if age <= time.Duration(*up.StabilizationWindowSeconds)*time.Second {
			lowest = min(lowest, m.n)
		}
		if age <= time.Duration(*down.StabilizationWindowSeconds)*time.Second {
			highest = max(highest, m.n)
		}
	}
	switch {
	case current < lowest:
		return lowest
	case current > highest:
		return highest
	}
	return current
}

// growTo is the largest size that the policies allow now.
func (p *hpaPast) growTo(current int32, rules autoscalingv2.HPAScalingRules, now time.Time) int32 {
	return choose(current, rules, true, func(policy autoscalingv2.HPAScalingPolicy) int32 {
		start := current
		for _, m := range recent(p.changes, now, time.Duration(policy.PeriodSeconds)*time.Second) {
			start -= max(m.n, 0)
		}
		if policy.Type == autoscalingv2.PodsScalingPolicy {
			return start + policy.Value
		}
		return int32(math.Ceil(float64(start) * (1 + float64(policy.Value)/100)))
	})
}

// shrinkTo is the smallest size that the policies allow now.
func (p *hpaPast) shrinkTo(current int32, rules autoscalingv2.HPAScalingRules, now time.Time) int32 {
	return choose(current, rules, false, func(policy autoscalingv2.HPAScalingPolicy) int32 {
		start := current
		for _, m := range recent(p.changes, now, time.Duration(policy.PeriodSeconds)*time.Second) {
			start -= min(m.n, 0)
		}
		if policy.Type == autoscalingv2.PodsScalingPolicy {
			return start - policy.Value
		}
		return int32(float64(start) * (1 - float64(policy.Value)/100))
	})
}

// choose picks among the policies the one that changes most, or least.
func choose(current int32, rules autoscalingv2.HPAScalingRules, growing bool, size func(autoscalingv2.HPAScalingPolicy) int32) int32 {
	if *rules.SelectPolicy == autoscalingv2.DisabledPolicySelect || len(rules.Policies) == 0 {
		return current
	}
	sizes := make([]int32, 0, len(rules.Policies))
	for _, policy := range rules.Policies {
		sizes = append(sizes, size(policy))
	}
	if growing == (*rules.SelectPolicy == autoscalingv2.MaxChangePolicySelect) {
		return slices.Max(sizes)
	}
	return slices.Min(sizes)
}
