package containerfiles_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/containerfiles"
)

// TestCalls has RUN instructions with the commands that a shell would start, each with its line.
func TestCalls(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text []string
		want []string
	}{
		"one command":                 {[]string{"RUN a -b c"}, []string{`1 ["a" "-b" "c"]`}},
		"operators":                   {[]string{"RUN a&&b||c;d&e | f |& g"}, []string{`1 ["a"]`, `1 ["b"]`, `1 ["c"]`, `1 ["d"]`, `1 ["e"]`, `1 ["f"] piped`, `1 ["g"] piped`}},
		"lines that continue":         {[]string{"RUN a \\", "  # why", "  b && \\", "", "  c"}, []string{`1 ["a" "b"]`, `5 ["c"]`}},
		"a word over two lines":       {[]string{"RUN a\\", "b c"}, []string{`1 ["ab" "c"]`}},
		"quotes":                      {[]string{`RUN a 'b; c' "d \" && e" f\ g h"i"'j' ""`}, []string{`1 ["a" "b; c" "d \" && e" "f g" "hij" ""]`}},
		"a quote over lines":          {[]string{"RUN <<E", "a 'b", "c' d", "e", "E"}, []string{`2 ["a" "b\nc" "d"]`, `4 ["e"]`}},
		"flags of RUN":                {[]string{"RUN --network=none --mount=type=tmpfs,target=/x \\", "  a --b"}, []string{`2 ["a" "--b"]`}},
		"prefixes":                    {[]string{"RUN A=1 B=2 env C=3 sudo exec a; if b; then c; else d; fi; ! e; { f; }; time g"}, []string{`1 ["a"]`, `1 ["b"]`, `1 ["c"]`, `1 ["d"]`, `1 ["fi"]`, `1 ["e"]`, `1 ["f"]`, `1 ["}"]`, `1 ["g"]`}},
		"a subshell":                  {[]string{"RUN (a; b) && c"}, []string{`1 ["a"]`, `1 ["b"]`, `1 ["c"]`}},
		"a substitution is a word":    {[]string{"RUN a $(b; c (d)) e $f ${g}"}, []string{`1 ["a" "$(b; c (d))" "e" "$f" "${g}"]`}},
		"a substitution without end":  {[]string{"RUN a $(b; c"}, []string{`1 ["a" "$(b; c"]`}},
		"a process substitution":      {[]string{"RUN a <(b; c) >(d)"}, []string{`1 ["a" "<(b; c)" ">(d)"]`}},
		"backticks":                   {[]string{"RUN a `b; c` d"}, []string{`1 ["a" "b; c" "d"]`}},
		"redirections":                {[]string{"RUN a > b 2>> c < d 2>&1 >| e; f >g"}, []string{`1 ["a"] > ["b" "c" "e"]`, `1 ["f"] > ["g"]`}},
		"both outputs":                {[]string{"RUN a &> b"}, []string{`1 ["a"] > ["b"]`}},
		"a comment":                   {[]string{"RUN a # b; c", "RUN a#b #"}, []string{`1 ["a"]`, `2 ["a#b"]`}},
		"a here string":               {[]string{"RUN a <<< 'b; c' && d"}, []string{`1 ["a"]`, `1 ["d"]`}},
		"a heredoc for the shell":     {[]string{"RUN <<E", "a", "b \\", "  c", "E"}, []string{`2 ["a"]`, `3 ["b" "c"]`}},
		"a heredoc for bash":          {[]string{"RUN bash -ex <<-'E'", "\ta; b", "\tE"}, []string{`1 ["bash" "-ex"]`, `2 ["a"]`, `2 ["b"]`}},
		"a heredoc for another":       {[]string{"RUN python3 <<E && a", "b", "E"}, []string{`1 ["python3"]`, `1 ["a"]`}},
		"a heredoc with interpreter":  {[]string{"RUN <<E", "#!/usr/bin/env bash", "a", "E", "RUN <<E", "#!/usr/bin/perl", "b", "E"}, []string{`3 ["a"]`}},
		"two heredocs":                {[]string{"RUN <<A <<B", "a", "A", "b", "B"}, []string{`2 ["a"]`, `4 ["b"]`}},
		"heredocs in a script":        {[]string{"RUN <<E", "a <<X > f", "reboot", "X", "b <<'Y' <<\\Z", "1", "Y", "2", "Z", "c", "E"}, []string{`2 ["a"] > ["f"]`, `5 ["b"]`, `10 ["c"]`}},
		"a heredoc without end in it": {[]string{"RUN <<E", "a <<X", "b", "E"}, []string{`2 ["a"]`}},
		"the JSON form":               {[]string{`RUN ["a", "b; c"]`}, []string{`1 ["a" "b; c"]`}},
		"a shell in the JSON form":    {[]string{`RUN ["/bin/sh", "-c", "a; b"]`}, []string{`1 ["a"]`, `1 ["b"]`}},
		"the escape directive":        {[]string{"# escape=`", "FROM x", "RUN a `", "  b\\c"}, []string{`3 ["a" "bc"]`}},
		"no command":                  {[]string{"RUN --network=none", "RUN", "RUN > a", "RUN # x"}, []string{`3 [] > ["a"]`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, cmp.Diff(test.want, containerfiles.Calls(parse(t, file(test.text...)))))
		})
	}
}
