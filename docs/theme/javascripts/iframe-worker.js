// On file:// a browser starts no worker from a file, and search needs one. A frame takes its place: the theme's worker
// knows it by this name, and looks for its own script in it. Nothing in it is inline, so that the page's policy holds.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      const load = file =>
        new Promise(done => {
          const script = inside.document.createElement("script")
          script.src = file
          script.onload = done
          inside.document.body.append(script)
        })
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...files) => files.reduce((before, file) => before.then(() => load(file)), Promise.resolve())
      this.ready = load(address)
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
