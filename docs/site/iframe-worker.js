/* Browsers refuse workers in pages opened from files. There, this class runs a worker's script in a hidden frame, for the search. */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) => urls.reduce((before, src) => before.then(() => load(src)), Promise.resolve());
      const load = src => new Promise((done, failed) => {
        const script = inside.document.createElement("script");
        Object.assign(script, { src, onload: done, onerror: failed });
        inside.document.body.append(script);
      });
      this.ready = load(new URL(url, document.baseURI).href);
      this.inside = inside;
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
