# Written by Layerwright's agent before it reboots the node, removed when the node has reported.
# Usage, in the root: sh layerwright-return.sh DIGEST DEPLOYMENT
#
# Returns the host to the deployment that ran before, and tries until it has: unless that one has
# booted again, or another image than the one of DIGEST. No program is asked what has booted: /etc is
# in its deployment. What fails or can't be read is no answer, and is tried again.
digest=$1 before=$2 asked=
readonly digest before

say() { echo "layerwright-return: $*"; }

has() { command -v "$1" >/dev/null 2>&1; }

run() {
	say "running $*"
	if has timeout; then timeout -k 5 60 "$@"; else "$@"; fi
}

# link_in sets link to what "ostree=" in the words of $1 leads to.
link_in() {
	link=
	for word in $1; do
		case $word in ostree=/*) link=${word#ostree=/} ;; esac
	done
}

# find_booted sets booted. The command line still names what was booted before a soft reboot.
find_booted() {
	booted='' line=''
	for d in ostree/deploy/*/deploy/*.[0-9]*; do
		if [ etc -ef "$d/etc" ]; then
			booted=$d
			return
		fi
	done
	read -r line <proc/cmdline
	link_in "$line"
	for d in ostree/deploy/*/deploy/*.[0-9]*; do
		if [ -n "$link" ] && [ "$link" -ef "$d" ]; then
			booted=$d
			return
		fi
	done
	say "can't find out what has booted"
	return 1
}

# is_over is true where there is nothing to return from.
is_over() {
	case $booted in */"$before") return 0 ;; esac
	origin=
	while read -r line; do origin="$origin$line "; done <"$booted.origin"
	case $origin in
	*"$digest"*) return 1 ;;
	*container-image-reference=*) return 0 ;;
	*) return 1 ;;
	esac
}

# read_entries reads the boot loader's entries: sets first to the one that boots next, mine to the
# one of the deployment that ran before, and index to how many come before that.
read_entries() {
	first='' first_version=-1 first_link='' mine='' versions=''
	for entry in boot/loader/entries/*.conf; do
		version='' link=''
		while read -r key value; do
			case $key in
			version) version=$value ;;
			options) link_in "$value" ;;
			esac
		done <"$entry"
		[ -n "$link" ] && [ "$version" -ge 0 ] || continue
		versions="$versions $version"
		if [ "$version" -gt "$first_version" ]; then
			first=$entry first_version=$version first_link=$link
		fi
		if [ "$link" -ef "${booted%/*}/$before" ]; then
			mine=$entry mine_version=$version mine_link=$link
		fi
	done
	[ -n "$first" ] || return 1
	index=0
	for version in $versions; do
		if [ -n "$mine" ] && [ "$version" -gt "$mine_version" ]; then index=$((index + 1)); fi
	done
}

# returns is true where the next boot is of another deployment. Without entries it is what a program
# has promised: to ask twice for a rollback may take it back.
returns() {
	[ ! -e run/ostree/staged-deployment ] || return 1
	if read_entries 2>/dev/null; then
		! [ "$first_link" -ef "$booted" ]
	else
		[ -n "$asked" ]
	fi
}

# entry_of prints the entry $1 with another version $2 and another deployment $3.
entry_of() {
	while IFS= read -r line; do
		case $line in
		version\ *) line="version $2" ;;
		options\ *ostree=*)
			rest=${line#*ostree=}
			case $rest in *\ *) rest=" ${rest#* }" ;; *) rest= ;; esac
			line="${line%%ostree=*}ostree=/$3$rest"
			;;
		esac
		printf '%s\n' "$line" || return 1
	done <"$1"
}

# swap exchanges two entries of the boot loader, for hosts without a program that can. Deployments
# of one kernel exchange their links instead: ostree relies on the order of those.
swap() {
	[ -n "$mine" ] && [ "$mine" != "$first" ] || return 1
	say "exchanging $first and $mine"
	run mount -o remount,rw /sysroot
	run mount -o remount,rw /boot
	to_first=$mine_link to_mine=$first_link
	if [ "${first_link%/*}" = "${mine_link%/*}" ]; then
		to_first=$first_link to_mine=$mine_link
	fi
	entry_of "$mine" "$first_version" "$to_first" >"$first.new" &&
		entry_of "$first" "$mine_version" "$to_mine" >"$mine.new" || return 1
	if [ "$to_first" = "$first_link" ]; then
		first_target=$(readlink "$first_link") && mine_target=$(readlink "$mine_link") &&
			ln -sfn "$mine_target" "$first_link.new" && ln -sfn "$first_target" "$mine_link.new" &&
			mv -fT "$first_link.new" "$first_link" && mv -fT "$mine_link.new" "$mine_link" || return 1
	fi
	mv -f "$first.new" "$first" && mv -f "$mine.new" "$mine" && sync
}

# return_by tries one way.
return_by() {
	returns && return
	case $1 in
	bootc) has bootc && run bootc rollback && asked=1 ;;
	rpm-ostree) has rpm-ostree && run rpm-ostree rollback && asked=1 ;;
	ostree) has ostree && [ -n "$mine" ] && run ostree admin set-default "$index" ;;
	*) swap ;;
	esac
	returns
}

# open_boot has /boot mounted, and keeps it so: systemd may unmount it when no one uses it, and
# programs with mounts of their own can't have it mounted again.
open_boot() {
	[ -e boot/loader/entries ] || run systemctl start boot.mount
	{ command exec 9<boot/loader/entries; } 2>/dev/null || say "/boot has no boot loader entries"
}

attempt() {
	find_booted || return 1
	if is_over; then
		say "nothing to do: $booted runs"
		exit 0
	fi
	open_boot
	rm -f run/ostree/staged-deployment # it would boot instead
	return_by bootc || return_by rpm-ostree || return_by ostree || return_by entries || return 1
	say "returning from $booted"
	run systemctl --no-block reboot || run systemctl --force reboot
}

pause=5
while [ -e "$0" ]; do # the agent removes it when the update is confirmed
	attempt || say "could not return to $before: trying again in $pause seconds"
	sleep "$pause" || exit 1 # systemd starts it again
	[ "$pause" -ge 300 ] || pause=$((pause * 2))
done
