// Loaded into servers that would listen on every interface: in a test they listen on the loopback alone.
const { Server } = require("net");
const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  if (typeof port === "object") return listen.call(this, port, ...rest);
  return listen.call(this, { port: Number(port), host: "127.0.0.1" }, ...rest.filter((one) => typeof one === "function"));
};
