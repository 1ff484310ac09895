// What Swagger's own markup lacks to be used by everybody: a landmark of the title, a heading above those of the groups,
// no link inside the button that opens an operation, and a name for the region of each operation's responses.
"use strict";
const forEverybody = ({ React: { Fragment, createElement } }) => ({
  wrapComponents: {
    InfoContainer: (Info) => (props) => createElement("div", { role: "banner" }, createElement(Info, props)),
    operations: (Operations) => (props) =>
      createElement(
        Fragment,
        null,
        createElement("h2", { className: "hidden-heading" }, "Operations"),
        createElement(Operations, props),
      ),
    responses: (Responses) => (props) => {
      const name = (inside) =>
        inside?.querySelector("[role=region]")?.setAttribute("aria-label", `Responses of ${props.method.toUpperCase()} ${props.path}`);
      return createElement("div", { ref: name }, createElement(Responses, props));
    },
    DeepLink: () => ({ text }) => createElement("span", null, text),
  },
});
