package api

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/node/util/sysctl"
)

func validUserID(id *int64, at *field.Path) field.ErrorList {
	if id == nil {
		return nil
	}
	return invalid(at, *id, validation.IsValidUserID(*id))
}

func validGroupID(id *int64, at *field.Path) field.ErrorList {
	if id == nil {
		return nil
	}
	return invalid(at, *id, validation.IsValidGroupID(*id))
}

// validPodSecurity checks the security context of the pod as a whole.
func (c *podCheck) validPodSecurity(at *field.Path) field.ErrorList {
	s := c.spec.SecurityContext
	if s == nil {
		return nil
	}
	errs := validGroupID(s.FSGroup, at.Child("fsGroup"))
	errs = append(errs, validUserID(s.RunAsUser, at.Child("runAsUser"))...)
	errs = append(errs, validGroupID(s.RunAsGroup, at.Child("runAsGroup"))...)
	for i := range s.SupplementalGroups {
		errs = append(errs, validGroupID(&s.SupplementalGroups[i], at.Child("supplementalGroups").Index(i))...)
	}
	errs = append(errs, c.validSysctls(s.Sysctls, at.Child("sysctls"))...)
	errs = append(errs, amongIfSet(s.FSGroupChangePolicy, at.Child("fsGroupChangePolicy"), corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)...)
	errs = append(errs, validSeccomp(s.SeccompProfile, at.Child("seccompProfile"))...)
	errs = append(errs, validWindowsOptions(s.WindowsOptions, at.Child("windowsOptions"))...)
	errs = append(errs, validAppArmor(s.AppArmorProfile, at.Child("appArmorProfile"))...)
	errs = append(errs, amongIfSet(s.SupplementalGroupsPolicy, at.Child("supplementalGroupsPolicy"), corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)...)
	return append(errs, amongIfSet(s.SELinuxChangePolicy, at.Child("seLinuxChangePolicy"), corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)...)
}

// validContainerSecurity checks the security context of a container.
func (c *podCheck) validContainerSecurity(s *corev1.SecurityContext, at *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := validUserID(s.RunAsUser, at.Child("runAsUser"))
	errs = append(errs, validGroupID(s.RunAsGroup, at.Child("runAsGroup"))...)
	errs = append(errs, amongIfSet(s.ProcMount, at.Child("procMount"), corev1.DefaultProcMount, corev1.UnmaskedProcMount)...)
	unmasked := s.ProcMount != nil && *s.ProcMount == corev1.UnmaskedProcMount
	errs = append(errs, refuse(unmasked && c.hostUsers(), at.Child("procMount"), s.ProcMount, "`hostUsers` must be false to use `Unmasked`")...)
	errs = append(errs, validSeccomp(s.SeccompProfile, at.Child("seccompProfile"))...)
	if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
		errs = append(errs, refuse(s.Privileged != nil && *s.Privileged, at, s, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")...)
		if s.Capabilities != nil {
			for _, add := range s.Capabilities.Add {
				errs = append(errs, c.old("system administrator", refuse(add == "CAP_SYS_ADMIN", at, s, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))...)
			}
		}
	}
	errs = append(errs, validWindowsOptions(s.WindowsOptions, at.Child("windowsOptions"))...)
	return append(errs, validAppArmor(s.AppArmorProfile, at.Child("appArmorProfile"))...)
}

var sysctlName = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

const longestSysctl = 253

func (c *podCheck) validSysctls(sysctls []corev1.Sysctl, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, s := range sysctls {
		here := at.Index(i).Child("name")
		switch {
		case s.Name == "":
			errs = append(errs, field.Required(here, ""))
		case len(s.Name) > longestSysctl || !sysctlName.MatchString(s.Name):
			errs = append(errs, field.Invalid(here, s.Name, fmt.Sprintf("must have at most %d characters and match regex %s", longestSysctl, sysctlName)))
		case seen[s.Name]:
			errs = append(errs, field.Duplicate(here, s.Name))
		}
		seen[s.Name] = true
		of, _, _ := sysctl.GetNamespace(s.Name)
		errs = append(errs, c.old("sysctl", refuse(of == sysctl.NetNamespace && c.spec.HostNetwork, here, s.Name, "may not be specified when 'hostNetwork' is true"))...)
		errs = append(errs, c.old("sysctl", refuse(of == sysctl.IPCNamespace && c.spec.HostIPC, here, s.Name, "may not be specified when 'hostIPC' is true"))...)
	}
	return errs
}

func validSeccomp(p *corev1.SeccompProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := need(p.Type == "", at.Child("type"), "type is required when seccompProfile is set")
	if p.Type != "" {
		errs = among(p.Type, at.Child("type"), corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	}
	file := at.Child("localhostProfile")
	switch {
	case p.Type != corev1.SeccompProfileTypeLocalhost:
		return append(errs, refuse(p.LocalhostProfile != nil, file, p, "can only be set when seccomp type is Localhost")...)
	case p.LocalhostProfile == nil:
		return append(errs, field.Required(file, "must be set when seccomp type is Localhost"))
	}
	return append(errs, validLocalPath(*p.LocalhostProfile, file)...)
}

func validAppArmor(p *corev1.AppArmorProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	const missing, longest = "must be set when AppArmor type is Localhost", 4095 // PATH_MAX - 1
	name, at := p.LocalhostProfile, at
	file := at.Child("localhostProfile")
	switch p.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		if name == nil {
			return field.ErrorList{field.Required(file, missing)}
		}
		var errs field.ErrorList
		switch {
		case strings.TrimSpace(*name) != *name:
			errs = append(errs, field.Invalid(file, *name, "must not be padded with whitespace"))
		case *name == "":
			errs = append(errs, field.Required(file, missing))
		}
		if len(*name) > longest {
			errs = append(errs, field.TooLong(file, "", longest))
		}
		return errs
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		return refuse(name != nil, file, name, "can only be set when AppArmor type is Localhost")
	case "":
		return field.ErrorList{field.Required(at.Child("type"), "type is required when appArmorProfile is set")}
	}
	return among(p.Type, at.Child("type"), corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
}

// What the names of Windows' domains and users may be.
var (
	windowsControl   = regexp.MustCompile(`[[:cntrl:]]+`)
	windowsNetBIOS   = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	windowsDNSDomain = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)
	windowsForbidden = regexp.MustCompile(`["/\\:;|=,\+\*\?<>@\[\]]`)
)

func validWindowsOptions(o *corev1.WindowsSecurityContextOptions, at *field.Path) field.ErrorList {
	if o == nil {
		return nil
	}
	const longestSpec = 64 // KiB
	var errs field.ErrorList
	if name := o.GMSACredentialSpecName; name != nil {
		errs = append(errs, invalid(at.Child("gmsaCredentialSpecName"), name, subdomain(*name))...)
	}
	if spec, here := o.GMSACredentialSpec, at.Child("gmsaCredentialSpec"); spec != nil {
		errs = append(errs, refuse(*spec == "", here, spec, "gmsaCredentialSpec cannot be an empty string")...)
		errs = append(errs, refuse(len(*spec) > longestSpec<<10, here, spec, fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", longestSpec))...)
	}
	if o.RunAsUserName != nil {
		for _, why := range badWindowsUser(*o.RunAsUserName) {
			errs = append(errs, field.Invalid(at.Child("runAsUserName"), o.RunAsUserName, why))
		}
	}
	return errs
}

// badWindowsUser says what is wrong with DOMAIN\user.
func badWindowsUser(name string) []string {
	const longestDomain, longestUser = 255, 104
	domain, user, withDomain := strings.Cut(name, `\`)
	switch {
	case name == "":
		return []string{"runAsUserName cannot be an empty string"}
	case windowsControl.MatchString(name):
		return []string{"runAsUserName cannot contain control characters"}
	case strings.Contains(user, `\`):
		return []string{"runAsUserName cannot contain more than one backslash"}
	case !withDomain:
		domain, user = "", name
	}
	var bad []string
	say := func(wrong bool, why string) {
		if wrong {
			bad = append(bad, "runAsUserName's "+why)
		}
	}
	say(len(domain) > longestDomain, fmt.Sprintf("Domain length must be under %d characters", longestDomain+1))
	say(withDomain && !windowsNetBIOS.MatchString(domain) && !windowsDNSDomain.MatchString(domain), "Domain doesn't match the NetBios nor the DNS format")
	say(user == "", "User cannot be empty")
	say(len(user) > longestUser, fmt.Sprintf("User length must not be longer than %d characters", longestUser))
	say(user != "" && strings.Trim(user, ". ") == "", "User cannot contain only periods or spaces")
	say(windowsForbidden.MatchString(user), `User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	return bad
}

// validHostProcess wants either all containers of a pod to be processes of a Windows
// host or none.
func (c *podCheck) validHostProcess(at *field.Path) field.ErrorList {
	var pod *bool
	if s := c.spec.SecurityContext; s != nil && s.WindowsOptions != nil {
		pod = s.WindowsOptions.HostProcess
	}
	var errs field.ErrorList
	all, ofHost := 0, 0
	c.each(at, func(one *corev1.Container, here *field.Path) {
		all++
		own := pod
		if s := one.SecurityContext; s != nil && s.WindowsOptions != nil && s.WindowsOptions.HostProcess != nil {
			own = s.WindowsOptions.HostProcess
		}
		if own != nil && *own {
			ofHost++
		}
		if pod != nil && *own != *pod {
			errs = append(errs, field.Invalid(here.Child("securityContext", "windowsOptions", "hostProcess"), *own, fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *pod)))
		}
	})
	if ofHost == 0 {
		return errs
	}
	errs = append(errs, refuse(ofHost != all, at, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers")...)
	return append(errs, refuse(!c.spec.HostNetwork, at.Child("hostNetwork"), c.spec.HostNetwork, "hostNetwork must be true if pod contains any hostProcess containers")...)
}

// validHostUsers keeps a pod with users of its own out of the host's namespaces.
func (c *podCheck) validHostUsers(at *field.Path) field.ErrorList {
	if c.hostUsers() {
		return nil
	}
	const why = "when `hostUsers` is false"
	errs := c.old("host network", forbid(c.spec.HostNetwork, at.Child("hostNetwork"), why))
	errs = append(errs, forbid(c.spec.HostPID, at.Child("HostPID"), why)...)
	errs = append(errs, forbid(c.spec.HostIPC, at.Child("HostIPC"), why)...)
	c.each(at, func(one *corev1.Container, here *field.Path) {
		errs = append(errs, c.old("devices of own users", forbid(len(one.VolumeDevices) > 0, here.Child("volumeDevices"), why))...)
	})
	return errs
}

func (c *podCheck) hostUsers() bool { return c.spec.HostUsers == nil || *c.spec.HostUsers }

func (c *podCheck) isWindows() bool { return c.spec.OS != nil && c.spec.OS.Name == corev1.Windows }

// validOS checks what a pod may have on the system that it says it is for.
func (c *podCheck) validOS(at *field.Path) field.ErrorList {
	if c.spec.OS == nil {
		return nil
	}
	name := c.spec.OS.Name
	errs := need(name == "", at.Child("os", "name"), "")
	if name != "" {
		errs = among(name, at.Child("os"), corev1.Linux, corev1.Windows)
	}
	if len(errs) > 0 {
		return errs
	}
	why, windows := "windows options cannot be set for a linux pod", name == corev1.Windows
	if windows {
		why = "cannot be set for a windows pod"
	}
	security := at.Child("securityContext")
	check := func(fields []setField, at *field.Path) {
		for _, f := range fields {
			errs = append(errs, forbid(f.set && (f.name == "windowsOptions") != windows, at.Child(f.name), why)...)
		}
	}
	if s := c.spec.SecurityContext; s != nil {
		check([]setField{
			{"windowsOptions", s.WindowsOptions != nil},
			{"appArmorProfile", s.AppArmorProfile != nil}, {"seLinuxOptions", s.SELinuxOptions != nil}, {"seccompProfile", s.SeccompProfile != nil},
			{"fsGroup", s.FSGroup != nil}, {"fsGroupChangePolicy", s.FSGroupChangePolicy != nil}, {"sysctls", len(s.Sysctls) > 0},
			{"runAsUser", s.RunAsUser != nil}, {"runAsGroup", s.RunAsGroup != nil}, {"supplementalGroups", s.SupplementalGroups != nil},
			{"supplementalGroupsPolicy", s.SupplementalGroupsPolicy != nil}, {"seLinuxChangePolicy", s.SELinuxChangePolicy != nil},
		}, security)
	}
	if windows {
		check([]setField{
			{"hostUsers", c.spec.HostUsers != nil}, {"hostPID", c.spec.HostPID}, {"hostIPC", c.spec.HostIPC}, {"shareProcessNamespace", c.spec.ShareProcessNamespace != nil},
		}, at)
	}
	c.each(at, func(one *corev1.Container, here *field.Path) {
		if s := one.SecurityContext; s != nil {
			check([]setField{
				{"windowsOptions", s.WindowsOptions != nil},
				{"appArmorProfile", s.AppArmorProfile != nil}, {"seLinuxOptions", s.SELinuxOptions != nil}, {"seccompProfile", s.SeccompProfile != nil},
				{"capabilities", s.Capabilities != nil}, {"readOnlyRootFilesystem", s.ReadOnlyRootFilesystem != nil}, {"privileged", s.Privileged != nil},
				{"allowPrivilegeEscalation", s.AllowPrivilegeEscalation != nil}, {"procMount", s.ProcMount != nil},
				{"runAsUser", s.RunAsUser != nil}, {"runAsGroup", s.RunAsGroup != nil},
			}, here.Child("securityContext"))
		}
	})
	return errs
}

// setField is a field, and whether something is in it.
type setField struct {
	name string
	set  bool
}

// The annotations that had a pod's profiles before there were fields for them.
const (
	seccompPod       = "seccomp.security.alpha.kubernetes.io/pod"
	seccompContainer = "container.seccomp.security.alpha.kubernetes.io/"
	appArmorPrefix   = "container.apparmor.security.beta.kubernetes.io/"
	localhostPrefix  = "localhost/"
)

// validProfileAnnotations checks those annotations by themselves.
func (c *podCheck) validProfileAnnotations(annotations map[string]string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seccomp := func(key string) {
		profile, here := annotations[key], at.Child(key)
		local, isLocal := strings.CutPrefix(profile, localhostPrefix)
		switch {
		case slices.Contains([]string{"runtime/default", "docker/default", "unconfined"}, profile):
		case isLocal:
			errs = append(errs, validLocalPath(local, here)...)
		default:
			errs = append(errs, field.Invalid(here, profile, "must be a valid seccomp profile"))
		}
	}
	if _, ok := annotations[seccompPod]; ok {
		seccomp(seccompPod)
	}
	keys := sortedKeys(annotations)
	for _, key := range keys {
		if strings.HasPrefix(key, seccompContainer) {
			seccomp(key)
		}
	}
	for _, key := range keys {
		name, ok := strings.CutPrefix(key, appArmorPrefix)
		if !ok {
			continue
		}
		found, profile := false, annotations[key]
		c.each(nil, func(one *corev1.Container, _ *field.Path) { found = found || one.Name == name })
		errs = append(errs, refuse(!found, at.Key(key), name, "container not found")...)
		known := profile == "" || profile == "runtime/default" || profile == "unconfined" || strings.HasPrefix(profile, localhostPrefix)
		errs = append(errs, refuse(!known, at.Key(key), profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile))...)
	}
	return errs
}

// validProfilesAgree wants annotations and fields to say the same where both are.
func (c *podCheck) validProfilesAgree(annotations map[string]string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	agree := func(key, kind, profileType string, file *string, here *field.Path) {
		annotation, ok := annotations[key]
		if !ok {
			return
		}
		type_ := here.Child("type")
		wrongType := field.Forbidden(type_, kind+" type in annotation and field must match")
		local, isLocal := strings.CutPrefix(annotation, localhostPrefix)
		switch {
		case profileType == "Unconfined" && annotation != "unconfined",
			profileType == "RuntimeDefault" && annotation != "runtime/default" && (kind != "seccomp" || annotation != "docker/default"),
			profileType == "Localhost" && !isLocal:
			errs = append(errs, wrongType)
		case profileType == "Localhost" && (file == nil || local != *file):
			errs = append(errs, field.Forbidden(here.Child("localhostProfile"), kind+" profile in annotation and field must match"))
		}
	}
	s := c.spec.SecurityContext
	if s != nil && s.SeccompProfile != nil {
		agree(seccompPod, "seccomp", string(s.SeccompProfile.Type), s.SeccompProfile.LocalhostProfile, at.Child("securityContext", "seccompProfile"))
	}
	c.each(at, func(one *corev1.Container, here *field.Path) {
		if own := one.SecurityContext; own != nil && own.SeccompProfile != nil {
			agree(seccompContainer+one.Name, "seccomp", string(own.SeccompProfile.Type), own.SeccompProfile.LocalhostProfile, here.Child("securityContext", "seccompProfile"))
		}
	})
	if c.isWindows() {
		return errs
	}
	c.each(at, func(one *corev1.Container, here *field.Path) {
		var profile *corev1.AppArmorProfile
		if s != nil {
			profile = s.AppArmorProfile
		}
		if own := one.SecurityContext; own != nil && own.AppArmorProfile != nil {
			profile = own.AppArmorProfile
		}
		if profile != nil {
			agree(appArmorPrefix+one.Name, "apparmor", string(profile.Type), profile.LocalhostProfile, here.Child("securityContext", "appArmorProfile"))
		}
	})
	return errs
}
