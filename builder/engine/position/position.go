//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package position

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/openshift/imagebuilder"
	"github.com/openshift/imagebuilder/dockerfile/parser"

	"github.com/layerwright/layerwright/builder/engine/report"
)

// Instruction is one of a rendered Containerfile.
type Instruction struct {
	// Text is as it is written, and message how Buildah's errors say it.
	Text, message string
	line          int
}

// stage is one stage with its FROM first, and how far it is.
type stage struct {
	name         string
	instructions []Instruction
	// next is the instruction that comes next; 0 is that the stage has not begun. current is the
	// one that was begun last.
	next    int
	Current *Instruction
	// output are the last lines of the current one, kept while another stage goes on.
	output []string
}

// Tracker follows a build by what Buildah says that it does, and knows the line of it. Buildah
// says the instruction and nothing else, so it is looked for among those that come next; the parser
// is the one that Buildah reads the file with. Stages take turns where one waits for another.
type Tracker struct {
	origins report.Origins
	stages  []*stage
	// At is the stage that goes on; nil before the first one.
	At   *stage
	done int64
}

// New reads a rendered Containerfile up to the target.
func New(containerfile, target string, origins report.Origins) (*Tracker, error) {
	tree, err := imagebuilder.ParseDockerfile(strings.NewReader(containerfile))
	if err != nil {
		return nil, fmt.Errorf("parsing the Containerfile: %w", err)
	}
	p := &Tracker{origins: origins}
	for _, node := range tree.Children {
		i := Instruction{Text: node.Original, message: messageOf(node), line: node.StartLine}
		switch {
		case strings.EqualFold(node.Value, "from"):
			p.stages = append(p.stages, &stage{name: stageName(node, len(p.stages)), instructions: []Instruction{i}})
		case len(p.stages) > 0:
			last := p.stages[len(p.stages)-1]
			last.instructions = append(last.instructions, i)
		}
	}
	for i, s := range p.stages {
		if strings.EqualFold(s.name, target) || strconv.Itoa(i) == target {
			p.stages = p.stages[:i+1]
			break
		}
	}
	return p, nil
}

// messageOf is how Buildah's errors name an instruction.
func messageOf(node *parser.Node) string {
	words := append([]string{strings.ToUpper(node.Value)}, node.Flags...)
	for word := node.Next; word != nil; word = word.Next {
		words = append(words, word.Value)
	}
	return strings.Join(words, " ")
}

// stageName is the name behind AS, or the number of the stage.
func stageName(from *parser.Node, number int) string {
	for word := from.Next; word != nil; word = word.Next {
		if strings.EqualFold(word.Value, "as") && word.Next != nil {
			return word.Next.Value
		}
	}
	return strconv.Itoa(number)
}

// Reached moves on to what Buildah says it does. The output is that of what it did last. False is
// that it is no instruction.
func (p *Tracker) Reached(message string, output []string) bool {
	if strings.HasPrefix(message, "COMMIT") {
		return false
	}
	if p.At != nil {
		p.At.output = output
	}
	if from, ok := strings.CutPrefix(message, "FROM "); ok && p.enter(from) {
		return true
	}
	if p.At == nil {
		return false
	}
	for _, s := range append([]*stage{p.At}, p.stages...) {
		if s.next > 0 && s.next < len(s.instructions) && isSaid(message, s.instructions[s.next].Text) {
			p.move(s)
			return true
		}
	}
	p.At.Current = &Instruction{Text: message, line: p.At.instructions[0].line} // an ONBUILD of the base, which belongs to its FROM
	return true
}

// isSaid allows for the summary of a heredoc that Buildah adds.
func isSaid(message, text string) bool {
	return message == text || strings.HasPrefix(message, text+" (")
}

// enter finds the stage that begins: by its name, or the first one that has none and did not begin.
func (p *Tracker) enter(from string) bool {
	_, name, named := strings.Cut(from, " AS ")
	for i, s := range p.stages {
		isNumber := s.name == strconv.Itoa(i)
		if s.next == 0 && (named && s.name == name || !named && isNumber) {
			p.move(s)
			return true
		}
	}
	return false
}

func (p *Tracker) move(s *stage) {
	s.Current, s.output = &s.instructions[s.next], nil
	s.next++
	p.At = s
	p.done++
}

// Progress is how many instructions are done or begun, of how many. Stages that nothing needs count
// as done once the last one has begun.
func (p *Tracker) Progress() (done, total int64) {
	done = p.done
	last := p.stages[len(p.stages)-1]
	for _, s := range p.stages {
		total += int64(len(s.instructions))
		if s.next == 0 && last.next > 0 {
			done += int64(len(s.instructions))
		}
	}
	return done, total
}

// Failed finds the instruction that an error is about, and the last lines that it wrote. Where the
// error names none, it is the one that was begun last; nil is that none was.
func (p *Tracker) Failed(err error, output []string) (*Instruction, []string) {
	if p.At == nil {
		return nil, nil
	}
	p.At.output = output
	for _, s := range append([]*stage{p.At}, p.stages...) {
		if s.Current != nil && strings.HasPrefix(err.Error(), AtStep+` "`+s.Current.message+`": `) {
			return s.Current, s.output
		}
	}
	return p.At.Current, p.At.output
}

// Place is an instruction with its line, such as `Containerfile line 7: RUN dnf install foo`. A RUN
// line that the administrator did not write is named by what it is for: no one can change its text.
func (p *Tracker) Place(i *Instruction) string {
	if p.origins.IsAdded(i.line) && strings.EqualFold(FirstWord(i.Text), "RUN") {
		return p.origins.Place(i.line)
	}
	return p.origins.Place(i.line) + ": " + report.Instruction(i.Text)
}

// FirstWord is the name of an instruction.
func FirstWord(text string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	return word
}

// AtStep is what Buildah puts in front where an instruction failed.
const AtStep = "building at STEP"
