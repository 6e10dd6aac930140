package plan

// needsStaging reports whether the node has to hold the image before it may go away.
func (d *decision) needsStaging(n *Node) bool {
	return d.background && n.Stages && !n.waitsForTurn() && d.Image != "" && n.CurrentImage != d.Image && n.StagedImage != d.Image
}

func (d *decision) stage(n *Node) {
	switch {
	case n.StageImage == d.Image && n.StageError != "":
		d.hold(n, "can't stage the image: "+n.StageError)
	case n.StageImage == d.Image:
		d.hold(n, "stages the image"+n.unanswered())
	case d.slots <= 0 && !n.isStaging():
		d.hold(n, "waits to stage the image: spec.rollout.staging.maxParallel nodes are staging already")
	default:
		if !n.isStaging() {
			d.slots--
		}
		d.move(Move{Node: n.Name, Action: Stage, Image: d.Image, Reason: "it does not hold the image yet"})
	}
}

// withdraw takes back a request to stage an image that no node may get.
func (d *decision) withdraw(n *Node) {
	if n.StageImage != "" && n.StageImage == d.Image {
		d.move(Move{Node: n.Name, Action: Unstage, Reason: "no node may get the image"})
	}
}

// unstage takes back a request for another image than the node runs. One for the image that it runs
// asks for nothing, and stays: that saves a write for every update.
func (d *decision) unstage(n *Node) {
	if n.StageImage != "" && n.StageImage != n.CurrentImage {
		d.move(Move{Node: n.Name, Action: Unstage, Reason: "it has what it should have"})
	}
}

// isStaging reports whether the node is pulling. One that failed waits before it tries again, and
// takes no slot from nodes that could pull; neither does one that is not Ready.
func (n *Node) isStaging() bool {
	isAsked := n.StageImage != "" && n.StageImage != n.StagedImage && n.StageImage != n.CurrentImage
	return isAsked && n.StageError == "" && n.Ready
}
