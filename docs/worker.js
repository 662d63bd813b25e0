// Pages opened from disk may not start workers, so the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inner = frame.contentWindow;
      const load = (source, done) => {
        const script = this.inner.document.createElement("script");
        script.src = source;
        script.onload = done;
        this.inner.document.body.appendChild(script);
      };
      this.inner.document.open();
      this.inner.document.write("<html><body></body></html>");
      this.inner.document.close();
      this.inner.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      this.inner.importScripts = (...sources) =>
        sources.reduce((all, source) => all.then(() => new Promise((done) => load(source, done))), Promise.resolve());
      this.ready = new Promise((done) => load(url, done));
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.inner.frameElement.remove();
    }
  };
}
